"""Texts that are hard to cut, to normalize or to decode."""

from __future__ import annotations

NASTY = (
    "",
    " ",
    "\0",
    "a\0b \0",
    "The quick brown fox, isn't it? I do not know 's. don't!",
    "  two  spaces   three\t\ttabs \n \n\n lines\r\n\r\nend  \n",
    "1234567890 3.14159 1,000,000 \u0661\u0662\u0663 \u216b \xbd x\xb2 \u2460",
    "def f(x):\n    return {'a': x[0]}  # comment\n\n\n",
    "na\xefve Stra\xdfe \u0130stanbul \u01c5 \u1e9e \ufb01ne caf\xe9 cafe\u0301",
    "q\u0323\u0307 q\u0307\u0323 \u212b \u2126",
    "\u4e2d\u6587 \u65e5\u672c\u8a9e\u304b\u306a \ud55c\uad6d\uc5b4",
    "\u1112\u1161\u11ab \u0e44\u0e17\u0e22 \u0915\u094d\u0937\u093f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea",
    "1\ufe0f\u20e3 \u200b\u200d\ufeff",
    "\u2581 \u2581\u2581a \u2581\u2581 b\u2581",
    "x<|end|>  \n y <|left|>z  <|both|>  word sword word's wordy word",
    "Lower Case lower case LOWER CASE \xe9t\xe9 e\u0301te\u0301 l'\xe9t\xe9 x\xe9t\xe9 <mask> a<mask>b  <mask>",
    "I'LL you'Re 'S 's 'T we've 'D'M \u017f'\u017f \u212a's",
    "``quoted'' -- the-final--countdown... (a|b) [c] {d} _e_ $5 +6 =7 ~8 ^9 `",
    "a" * 40 + "b" * 31 + " " * 20 + "!" * 12,
    b"bad \xff\xf0\x9f end \xe2\x96".decode("utf-8", "replace"),
    "\u0301\u0302 a\u0301\u0301\u0301 \u093f\u0903 \u20dd \u06dd\u00ad\u061c\u110bd",
    "\x01\x02\x7f\x80\x9f\xa0\u1680\u2028\u2029\u3000\x85\x0b\x0c\x1c",
    "\ufdfa \uff21\uff22\uff11 \u33c2 \u2122 \u1d400\U0001d400 \u3392 \uac01 \u32d0",
    "\u166d\U000111c9 \u061d \u09fd \u2e43 \u3001\u3002\uff0c\u0964",
    "<unk> <s> </s> [UNK] [CLS] <0x41> <|endoftext|>",
)
