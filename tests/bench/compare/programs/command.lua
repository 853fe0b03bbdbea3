-- Load for wrk on `POST /command`, in one thread: `-- WORK AMOUNT FIRST TOPIC`.
--
-- add: jobs due in a day, with the numbers from FIRST on, for AMOUNT seconds.
-- pop: AMOUNT jobs are popped and finished, two requests each. next: the same, but the end of a job and the pop of the
-- next one are an array in one request.
--
-- wrk tells a script nothing of its connections, so what is popped on one may be finished on another; each connection
-- still has one request open at a time. Prints {"jobs":…,"seconds":…,"wrong":…} and ends the process itself, as wrk
-- would go on for its whole -d.

local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } span; int clock_gettime(int clock, span *now);")
local MONOTONIC = 1
local now = ffi.new("span")

local function seconds()
  ffi.C.clock_gettime(MONOTONIC, now)
  return tonumber(now.s) + tonumber(now.ns) / 1e9
end

local work, amount, number, topic
local begun, jobs, wrong = nil, 0, 0
local popped = {}  -- what is to be finished: pairs of id and lease
local seen = {}

local function post(body)
  return "POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    .. #body .. "\r\n\r\n" .. body
end

local function finish_command()
  local lease, id = table.remove(popped), table.remove(popped)
  return '{"command":"finish","id":"' .. id .. '","lease":' .. lease .. "}"
end

local function pop_command()
  return '{"command":"pop","topic":"' .. topic .. '"}'
end

local make = {
  add = function()
    number = number + 1
    return string.format('{"command":"add","topic":"%s","id":"job:%016d","delay":86400,"retention":0,"body":"%s"}',
      topic, number - 1, ("x"):rep(98))
  end,
  pop = function() return #popped > 0 and finish_command() or pop_command() end,
  next = function()
    return #popped > 0 and "[" .. finish_command() .. "," .. pop_command() .. "]" or pop_command()
  end,
}

local function report()
  io.write(string.format('{"jobs":%d,"seconds":%.6f,"wrong":%d}\n', jobs, seconds() - begun, wrong))
  io.flush()
  os.exit(0)
end

local function take(body)
  local at = body:find('"lease":', 1, true)
  if at then
    local id = body:match('"id":"([^"]+)","value"')
    wrong = wrong + (seen[id] and 1 or 0)
    seen[id] = true
    popped[#popped + 1] = id
    popped[#popped + 1] = body:match("%d+", at)
  end
end

function init(args)
  work, amount, number, topic = args[1], tonumber(args[2]), tonumber(args[3]), args[4]
end

function request()
  begun = begun or seconds()
  return post(make[work]())
end

function response(status, _, body)
  if status ~= 200 or body:find('"success":false', 1, true) then wrong = wrong + 1 end
  if work == "add" then
    jobs = jobs + 1
    if jobs % 64 == 0 and seconds() - begun > amount then report() end
    return
  end
  if body:find('"state":"finished"', 1, true) then jobs = jobs + 1 end
  if jobs == amount then report() end
  take(body)
end
