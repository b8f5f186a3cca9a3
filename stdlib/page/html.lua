-- html.lua - elements of a page and how they become text. Whatever is not an element is
-- text and goes through escape(), so nothing of a plan can become markup.
local shown = use "shown"
local html = {}

local entity = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- The one way of a text into a page; what a terminal would obey is written out.
function html.escape(text)
  return (string.gsub(shown(tostring(text)), "[&<>\"']", entity))
end

-- html.el("td", { class = "n" }, "text", element, { list of both })
function html.el(name, attributes, ...)
  return { name = name, attributes = attributes, n = select("#", ...), ... }
end

-- Markup that was made elsewhere and is right: pictures of timelines, the style.
function html.markup(text) return { markup = text } end

html.newline = html.markup "\n"

local empty = { meta = true, col = true, br = true }

local function add(out, node)
  if node == nil or node == false then return end
  if type(node) ~= "table" then
    out[#out + 1] = html.escape(node)
  elseif node.markup then
    out[#out + 1] = node.markup
  elseif not node.name then
    for _, child in ipairs(node) do add(out, child) end
  else
    out[#out + 1] = "<" .. node.name
    for _, key in ipairs(keys(node.attributes or {})) do
      out[#out + 1] = string.format(' %s="%s"', key, html.escape(node.attributes[key]))
    end
    out[#out + 1] = ">"
    for i = 1, node.n do add(out, node[i]) end
    if not empty[node.name] then out[#out + 1] = "</" .. node.name .. ">" end
  end
end

function html.text(node)
  local out = {}
  add(out, node)
  return table.concat(out)
end

-- ---- parts that several sections have ----

local el = html.el

-- A region that scrolls by itself where the page is narrow, by keys too.
function html.scrolling(label, ...)
  return el("div", { class = "scroll", tabindex = "0", role = "region", ["aria-label"] = label }, ...)
end

-- heads: { text, or { text, class } }; rows: lists of cells, the first of which names the
-- row; a cell is text, an element, or { cell =, class = }.
function html.table(caption, heads, rows)
  local head, body = {}, {}
  for i, h in ipairs(heads) do
    head[i] = el("th", { scope = "col", class = type(h) == "table" and h[2] or "n" },
                 type(h) == "table" and h[1] or h)
  end
  for i, row in ipairs(rows) do
    local cells = {}
    for k = 1, #heads do
      local class = type(heads[k]) == "table" and heads[k][2] or "n"
      cells[k] = el(k == 1 and "th" or "td", { class = class, scope = k == 1 and "row" or nil }, row[k])
    end
    body[i] = el("tr", row.class and { class = row.class }, cells)
    cells[#cells + 1] = html.newline
  end
  return html.scrolling(caption, el("table", nil, el("caption", nil, caption),
    el("thead", nil, el("tr", nil, head)), el("tbody", nil, html.newline, body)))
end

-- A bar of shares, each { share, class of its colour, name }; a table beside it has the
-- figures, so that it is no more than a picture.
function html.bar(shares, limit)
  local parts = {}
  for _, s in ipairs(shares) do
    if s[1] > 0.0005 then
      parts[#parts + 1] = el("i", { class = s[2], style = string.format("width:%.2f%%", 100 * s[1]), title = s[3] })
    end
  end
  local line = limit and el("b", { style = string.format("left:%.2f%%", 100 * limit) })
  return el("div", { class = "bar", ["aria-hidden"] = "true" }, parts, line)
end

-- What the colours of bars mean.
function html.legend(items)
  local out = {}
  for i, one in ipairs(items) do out[i] = el("li", nil, el("i", { class = one[1] }), one[2]) end
  return el("ul", { class = "legend", ["aria-hidden"] = "true" }, out)
end

function html.section(id, title, ...)
  return el("section", { id = id, ["aria-labelledby"] = id .. "-title" },
    el("h2", { id = id .. "-title" }, title), ...)
end

function html.note(...) return el("p", { class = "note" }, ...) end

return html
