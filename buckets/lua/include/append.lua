-- Append two values, or three. (A third value of nil is not assigned, as Lua would allocate room for it.)
local function append(list, first, second, third)
  local n = #list
  list[n + 1], list[n + 2] = first, second
  if third then list[n + 3] = third end
end
