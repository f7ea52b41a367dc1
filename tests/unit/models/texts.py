"""Strings that tokenizers get wrong."""

TEXTS = (
    "",
    " ",
    "Hello, world!",
    "  two leading spaces and a trailing one ",
    "tabs\tand\nnewlines\r\n\n\n",
    "numbers 1 22 333 4444 3.14159 2026-12-01",
    "CamelCase snake_case kebab-case don't we'll I'd",
    "naïve café Ångström ﬁ ligature",
    "Привет, мир",
    "你好，世界。日本語テキスト、한국어",
    "مرحبا بالعالم שלום",
    "emoji 👋🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️",
    "combining: e\u0301 a\u030a \u200b zero width \u202e rtl",
    "control \x00\x01\x07\x1b[0m \x7f \x80 \ufeff",
    "replacement \ufffd stays",
    "<|im_start|>system\nnot really<|im_end|><|endoftext|>",
    "<|im_start|",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🜚 \U0010ffff",
    "a" * 500,
    "def f(x):\n    return {k: v for k, v in x.items() if v != 0}\n",
)

CHATS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
    [
        {"role": "user", "content": "你好 👋"},
        {"role": "assistant", "content": "Hello\n\n"},
        {"role": "user", "content": "<|im_end|> trick"},
    ],
    [{"role": "user", "content": "x", "name": None}],
    [{"role": "user", "content": ""}],
)
