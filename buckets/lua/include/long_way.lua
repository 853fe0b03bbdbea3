-- Begins a function that the script ends: all that plain jobs do without. Each function that a script defines is made
-- anew in every run, and those of record and moves are more than half of what a script for one job costs.
local function long_way(...)
