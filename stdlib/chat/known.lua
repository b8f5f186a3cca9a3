-- known.lua - the templates that weft has: their options besides `system`, their roles, and the hashes of the
-- Jinja templates that give the same text. A hash is the SHA-256 of a chat_template without
-- spaces and lines at its ends.
local known = {}

-- Each name with the options that its template has; stdlib/chat/templates has a file for each,
-- with _ for what is no letter and no digit.
known.templates = {
  ["chatml"] = {},
  ["deepseek"] = { "keep_reasoning" },
  ["deepseek-r1-distill"] = { "keep_reasoning" },
  ["deepseek-v3"] = {},
  ["gemma"] = {},
  ["gemma3"] = {},
  ["gpt-oss"] = { "date", "model_identity", "reasoning_effort" },
  ["llama3"] = {},
  ["llama3.1"] = { "date", "tools_in_user_message" },
  ["mistral"] = {},
  ["qwen2.5"] = {},
  ["qwen3"] = { "enable_thinking", "keep_reasoning", "reasoning" },
  ["smollm2"] = {},
}

-- The roles that each template writes: a message of any other would be left out of its text, or
-- stand there as an answer.
local tools = { "system", "user", "assistant", "tool" }
local all = { "system", "developer", "user", "assistant", "tool", "ipython" }

known.roles = {
  ["chatml"] = all,
  ["deepseek"] = tools,
  ["deepseek-r1-distill"] = tools,
  ["deepseek-v3"] = tools,
  ["gemma"] = { "user", "assistant", "system" },
  ["gemma3"] = { "user", "assistant", "system" },
  ["gpt-oss"] = { "system", "developer", "user", "assistant", "tool" },
  ["llama3"] = all,
  ["llama3.1"] = all,
  ["mistral"] = tools,
  ["qwen2.5"] = tools,
  ["qwen3"] = tools,
  ["smollm2"] = all,
}

known.hashes = {
  ["872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788"] =
    { "smollm2" },
  ["ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122"] =
    { "llama3" },
  ["bc213ef03ac49e40c58b11933b109235e63d25f13e7cd4df966c577966d2345e"] =
    { "llama3" },
  ["93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7"] =
    { "llama3.1" },
  ["d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f"] =
    { "llama3.1" },
  ["55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a"] =
    { "qwen2.5" },
  ["f3714f7117c9d447db80ceb3fcb67a64ba08d149dd4434fe53add9c7f1dd344b"] =
    { "qwen2.5" },
  ["a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8"] =
    { "qwen3" },
  ["1d944ff8f268b611abb296cdd24d0f51981eef1c8647ac321c3a0258f61eb6c9"] =
    { "qwen3", keep_reasoning = true },
  ["64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326"] =
    { "qwen3", reasoning = false },
  ["48e17aa3caf5bf20075b6e7366864ee943e00b6f0752aadfe8b670c2ab0291a5"] =
    { "qwen3", reasoning = false },
  ["ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6"] =
    { "gemma" },
  ["ee06c456c3a7f9b11598f2ccb8ac64c248d962e17cdc53ff414e6427051d3847"] =
    { "gemma" },
  ["8d9e3a3c114fb2053ec500184677af4f7e5f8ec2582443cd535834e68b3ade29"] =
    { "gemma3" },
  ["f168271feb9abc530eeaf742fa0e6aeeec7266ade5370f0cd035c9ba7a0b6f4e"] =
    { "gemma3" },
  ["563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64"] =
    { "deepseek" },
  ["aadb4942004c186f9ba97d28f653d7f2e0dc20e4275352a486f7cafbe4dd7b51"] =
    { "deepseek" },
  ["56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f"] =
    { "deepseek-r1-distill" },
  ["439ca50e037bdf26b9e654e3eaa559fdd19d41e602307bcb133451070eb2ee3e"] =
    { "deepseek-r1-distill", keep_reasoning = true },
  ["1abb11869cb1ab4f7003d1c40de7c11b046c7844da22a67e6154d29e7d14d994"] =
    { "deepseek-v3" },
  ["3b8267e54b67df6500f231ffa969955cc9d26b3444a291ced4eb96ca7d3ca1ea"] =
    { "deepseek-v3" },
  ["a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146"] =
    { "gpt-oss" },
  ["6adda7cea0f63ef14918be7f26100b324525b6185a8f06932914388ffaa52e32"] =
    { "gpt-oss" },
}

function known.file(name) return (name:gsub("[^%w]", "_")) end

return known
