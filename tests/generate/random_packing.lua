-- random_packing.lua - draws by number how documents lie in rows: as one stream, of which labels are
-- at the ends of documents, too; or whole, with rows that are filled up with tokens that have no
-- label. `rows`: the loss is of sequences, which documents do not share; `stream`: what is drawn if
-- not that.
return function(new_draw, number, rows, seq, stream)
  local d = new_draw(number + 43)
  local whole = d:maybe(4)
  if not whole then return stream end
  return { eot = 3, size = seq, too_long = "truncate", alone = rows or d:maybe(2) or nil }
end
