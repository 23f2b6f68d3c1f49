"""Prints the table in data/text/character_classes.cpp: python gen_character_classes.py (unicodedata2 16.0.0).

Each run of code points of one general category is a letter, "a" + the category's index, and the length
of the run unless that is 1.
"""
import itertools
import textwrap

import unicodedata2

CATEGORIES = "Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()

assert unicodedata2.unidata_version == "16.0.0"
runs = ""
for category, run in itertools.groupby(unicodedata2.category(chr(c)) for c in range(0x110000)):
    length = len(list(run))
    runs += chr(ord("a") + CATEGORIES.index(category)) + (str(length) if length > 1 else "")
for line in textwrap.wrap(runs, 114):
    print(f'    "{line}"')
