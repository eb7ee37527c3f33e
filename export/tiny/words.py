"""Seeded text for synthetic pages: words, sentences, numbers, table cells and simple LaTeX. Pure functions of a
random state."""

from __future__ import annotations

import random

COMMON = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were all her she there would their we him been has when who will no more if out so said what up "
    "its about than into them can only other new some could time these two may then do first any my now such like "
    "our over man me even most made after also did many before must through back years where much your way well "
    "down should because each just those people how too little state good very make world still own see men work "
    "long get here between both life being under never day same another know while last might us great old year off "
    "come since against go came right used take three house place again water light city small large number paper "
    "table price order store street letter office school garden winter summer morning evening window bridge river "
    "forest island market station train engine machine printer scanner memory screen board copper silver bottle "
    "basket kitchen bread butter cheese coffee sugar apple orange lemon carrot potato chicken dinner lunch menu "
    "guest ticket museum theatre concert music piano violin doctor nurse health patient report result method figure "
    "sample measure weight height length speed pressure temperature energy power current voltage signal network "
    "server storage backup version release manual warranty invoice payment account customer address delivery "
    "package quantity discount total balance annual quarterly monthly weekly daily section chapter page index notes "
    "summary review editor author reader printed published received opened closed started finished checked signed "
    "approved changed moved carried turned placed found given written quick brown fox jumps lazy dog zero maximum "
    "jacket quiz vex expert example project budget edge device "
).split()
ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sc sh sk sl sm sn sp st str t th tr v w wh "
    "y z"
).split()
NUCLEI = "a e i o u ai ea ee ia io oa oo ou".split()
CODAS = [
    "",
    "",
    "",
    "l",
    "n",
    "m",
    "r",
    "s",
    "t",
    "d",
    "g",
    "k",
    "p",
    "x",
    "ck",
    "ld",
    "nd",
    "nt",
    "rd",
    "rn",
    "st",
    "sh",
    "th",
    "ng",
]
ACCENTED = "café Müller naïve Zürich façade über señor Ångström élan Größe déjà crème".split()
MONTHS = "January February March April May June July August September October November December".split()
UNITS = "kg g mm cm m km l ml W kW V A Hz GB MB % °C € $ £".split()
GREEK = ["alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "pi", "sigma", "omega"]


def pseudo_word(rng: random.Random) -> str:
    return "".join(rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(rng.choice((1, 2, 2, 3))))


def number(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return str(rng.randrange(10 ** rng.randint(1, 4)))
    if kind < 0.6:
        return f"{rng.randrange(1000)}.{rng.randrange(100):02d}"
    if kind < 0.7:
        return f"{rng.randint(1, 99)},{rng.randrange(1000):03d}"
    if kind < 0.8:
        return f"{rng.randint(1, 100)}%"
    if kind < 0.9:
        return f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1950, 2030)}"
    return f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def code(rng: random.Random) -> str:
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    return (
        "".join(rng.choice(letters + "0123456789") for _ in range(rng.randint(2, 4)))
        + "-"
        + str(rng.randrange(10 ** rng.randint(2, 4)))
    )


def word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.62:
        return rng.choice(COMMON)
    if kind < 0.86:
        return pseudo_word(rng)
    if kind < 0.96:
        return number(rng)
    return code(rng) if kind < 0.985 else rng.choice(ACCENTED)


def words(rng: random.Random, count: int) -> list[str]:
    """Words of running text with capitals and punctuation attached."""
    out: list[str] = []
    start = True
    for i in range(count):
        w = word(rng)
        if (start or rng.random() < 0.06) and w[0].isalpha():
            w = w[0].upper() + w[1:]
        if rng.random() < 0.03:
            w = rng.choice(('"{}"', "({})", "'{}'", "[{}]")).format(w)
        start = False
        mark = rng.random()
        if i == count - 1 or mark < 0.09:
            w += rng.choice("....!?") if mark < 0.5 or i < count - 1 else "."
            start = True
        elif mark < 0.17:
            w += rng.choice(",,,,;:")
        elif mark < 0.18:
            w += " " + rng.choice("-–&/+")
        out.append(w)
    return out


def heading(rng: random.Random) -> str:
    text = " ".join(
        w if rng.random() < 0.4 else w[0].upper() + w[1:] for w in (word(rng) for _ in range(rng.randint(1, 4)))
    )
    text = text[0].upper() + text[1:]
    return f"{rng.randint(1, 9)}. {text}" if rng.random() < 0.2 else text


def cell(rng: random.Random, column_kind: int) -> str:
    """One table cell; 0 a label, 1 an amount, 2 a count, 3 a code, 4 a value with a unit."""
    if column_kind == 0:
        return " ".join(
            rng.choice(COMMON) if rng.random() < 0.7 else pseudo_word(rng) for _ in range(rng.choice((1, 1, 2)))
        ).capitalize()
    if column_kind == 1:
        return f"{rng.randrange(1000)}.{rng.randrange(100):02d}"
    if column_kind == 2:
        return str(rng.randrange(10 ** rng.randint(1, 4)))
    if column_kind == 3:
        return code(rng)
    return f"{rng.randrange(500)} {rng.choice(UNITS)}"


def formula(rng: random.Random) -> str:
    """Simple display LaTeX in the spacing-free form, e.g. ``E=mc^{2}``."""

    def atom() -> str:
        kind = rng.random()
        base = rng.choice("abcdefghkmnpqrstuvwxyzABCDEFGHKLMNPRSTVW") if kind < 0.75 else "\\" + rng.choice(GREEK) + " "
        if kind < 0.2:
            return base.strip() + "^{" + rng.choice(("2", "3", "n", "i", "k", "-1")) + "}"
        if kind < 0.4:
            return base.strip() + "_{" + rng.choice(("0", "1", "2", "i", "n", "j")) + "}"
        return base if rng.random() < 0.8 else str(rng.randint(2, 99))

    def term() -> str:
        kind = rng.random()
        if kind < 0.5:
            return "".join(atom() for _ in range(rng.choice((1, 1, 2))))
        if kind < 0.7:
            return "\\frac{" + atom() + rng.choice(("", "+" + atom(), "-" + atom())) + "}{" + atom() + "}"
        if kind < 0.8:
            return "\\sqrt{" + atom() + rng.choice(("", "+" + atom())) + "}"
        if kind < 0.88:
            return "(" + atom() + rng.choice("+-") + atom() + ")"
        if kind < 0.95:
            return "\\sum_{i=" + rng.choice("01") + "}^{" + rng.choice("nNm") + "}" + atom()
        return "\\int_{" + rng.choice("0a") + "}^{" + rng.choice("1b") + "}" + atom() + "dx"

    left = rng.choice("EFPQRSTVWfgxyz")
    left += rng.choice(("", "", "(x)", "_{n}", "^{2}"))
    right = term()
    for _ in range(rng.choice((0, 1, 1, 2))):
        right += rng.choice("+-") + term()
    return (left + "=" + right).replace(" ^", "^").replace(" _", "_").replace(" }", "}").replace(" )", ")").strip()
