std = "lua54"
stds.weft = { read_globals = { "weft" } }
max_line_length = 100
