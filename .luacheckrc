-- A script and its includes use each other's locals, so what is undefined (11) or unused (211) in one file says nothing; the
-- tests run every script as it is composed.
std = "lua51"
ignore = {"11", "211", "212/never", "231"}
redefined = false
max_line_length = 130
