"""Networks in the Bayesian Interchange Format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.networks.bayesnet import BayesNet
from shoal.networks.interchange import parse_bif
from tests.networks.models import literature

TEXT = """
network weather { property author nobody; }
// a comment
variable rain { type discrete [ 2 ] { no, yes }; property x = "1; 2"; }
variable "wet" { type discrete [ 3 ] { dry, damp, soaked }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( wet | rain ) {  /* one row
                               per value */
  (no) 0.12345678901234567, 0.8, 0.07654321098765433;
  (yes) 0.1, 0.2, 0.7;
}
"""


def test_every_digit_is_kept() -> None:
    net = parse_bif(TEXT)
    assert net.variables == ("rain", "wet")
    assert net.domains == (("no", "yes"), ("dry", "damp", "soaked"))
    assert net.parents == ((), ("rain",))
    assert net.tables[1][0, 0] == 0.12345678901234567
    assert net.tables[1][1].tolist() == [0.1, 0.2, 0.7]


def test_one_table_lists_the_variable_itself_slowest() -> None:
    rows = "table 0.1, 0.4, 0.9, 0.6;"
    text = TEXT.split("probability ( wet", maxsplit=1)[0]
    text += "variable b { type discrete [ 2 ] { x, y }; }"
    text += "probability ( wet | rain ) { default 0.5, 0.25, 0.25; (no) 1.0, 0.0, 0.0; }"
    net = parse_bif(text + f"probability ( b | rain ) {{ {rows} }}")
    assert net.law("b", where={"rain": "no"}) == pytest.approx([0.1, 0.9])
    assert net.law("b", where={"rain": "yes"}) == pytest.approx([0.4, 0.6])
    assert net.tables[1].tolist() == [[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]


def test_rows_rounded_when_printed_are_divided() -> None:
    net = parse_bif(TEXT.replace("0.1, 0.2, 0.7", "0.3333, 0.3333, 0.3333"))
    assert net.tables[1][1] == pytest.approx(np.full(3, 1 / 3), abs=1e-16)


def test_files_plain_and_compressed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "w.bif", tmp_path / "w.bif.gz"
    plain.write_text(TEXT)
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert BayesNet.from_bif(plain) == BayesNet.from_bif(str(packed))
    with pytest.raises(InputError, match="does not exist"):
        BayesNet.from_bif(tmp_path / "none.bif")
    (tmp_path / "bad.bif.gz").write_bytes(b"not packed")
    with pytest.raises(InputError, match="cannot be read"):
        BayesNet.from_bif(tmp_path / "bad.bif.gz")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.8, 0.2;", "0.8, 0.3;", "a row of 'rain' sums to 1.1"),
        ("0.8, 0.2;", "0.8, -0.2;", "holds '-0.2'; it must be between 0 and 1"),
        ("0.8, 0.2;", "0.8;", "the table of 'rain' has 1 numbers; it needs 2"),
        ("0.8, 0.2;", "0.8, zero;", "holds 'zero'"),
        ("(yes) 0.1, 0.2, 0.7;", "", "leaves out some values of its parents"),
        ("(yes) 0.1", "(maybe) 0.1", "names 'maybe', no value of 'rain'"),
        ("(yes) 0.1", "(yes, no) 0.1", "it has 1 parents"),
        ("[ 2 ]", "[ 4 ]", "says 4 values and names 2"),
        ("( wet | rain )", "( wet | snow )", "probability names 'snow'"),
        ("probability ( rain ) { table 0.8, 0.2; }", "", "variable 'rain' has no probability"),
        ("0.2, 0.7;\n}", "0.2, 0.7;", "it ends in the middle of a block"),
    ],
)
def test_what_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=message):
        parse_bif(TEXT.replace(old, new))


def test_the_networks_that_come_with_pgmpy() -> None:
    net = literature("asia")
    assert len(net.variables) == 8
    assert net.law("either", where={"lung": "yes"}) == pytest.approx([1.0, 0.0])
    alarm = literature("alarm")
    assert (len(alarm.variables), alarm.tied) == (37, 37)
    assert sum(map(len, alarm.parents)) == 46
