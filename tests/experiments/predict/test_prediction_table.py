"""What `predict` prints of many images: a line each, and no more remarks than a reader reads."""

import re

import pytest

from experiments.predict import prediction


def values(count):
    """Predictions of as many images, every second OOD, all resized."""
    rows = [
        {
            "image": f"{i}.png",
            "class": "cat",
            "confidence": 0.5,
            "ood_probability": None,
            "score": 0.5,
            "p_value": None,
            "is_ood": i % 2 == 0,
            "why": ["far away"] * (i % 2 == 0),
            "changes": ["turned grey"],
        }
        for i in range(count)
    ]
    return {"dataset": "pets", "method": "standard", "source": "run", "rule": "A rule", "images": rows}


def test_remarks_on_many_images_are_cut_and_counted():
    text = prediction.table(values(1000), width=100)
    assert "1,000 images: 500 OOD, 500 in-domain." in text
    assert (text.count(": far away"), text.count("was turned grey")) == (20, 20)
    assert "… and reasons of 480 more images, which --json has" in text
    assert "… and changes of 980 more images, which --json has" in text


def test_a_few_images_have_all_remarks():
    text = prediction.table(values(20), width=100)
    assert (text.count(": far away"), text.count("was turned grey")) == (10, 20)
    assert "more images" not in text
    assert "20 images" not in text


def test_images_that_cannot_be_read_have_rows_and_reasons():
    shown = values(2)
    shown["images"].insert(1, {"image": "b.png", "error": "b.png: not a readable image (truncated)"})
    lines = prediction.table(shown, width=100).splitlines()
    assert re.findall(r"[\w.%–-]+", lines[5]) == ["b.png", "–", "–", "–", "–", "unreadable"]
    assert "unreadable: b.png: not a readable image (truncated)" in lines
    many = values(30)
    many["images"][3:5] = [{"image": f"{i}.png", "error": "gone"} for i in (3, 4)]
    assert "30 images: 14 OOD, 14 in-domain, 2 unreadable." in prediction.table(many, width=100)


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ([0.98765, 0.5, 1e-5], ["0.988", "0.500", "0.000"]),
        ([12.3456, -3.0, 0.25], ["12.35", "-3.00", "0.25"]),
        ([1234.5, 2.0], ["1234", "2"]),
        ([0.0123456, 0.001], ["0.01235", "0.00100"]),
        ([1e9, 2.0], ["1e+09", "2"]),
        ([0.0, 0.0], ["0", "0"]),
    ],
)
def test_scores_have_decimals_that_fit_them(scores, shown):
    found = values(len(scores))
    for row, score in zip(found["images"], scores, strict=True):
        row["score"] = score
    rows = prediction.table(found, width=100).splitlines()[4 : 4 + len(scores)]
    assert [row.split("│")[5].strip() for row in rows] == shown


def test_without_a_verdict_none_is_counted():
    open_ones = values(30)
    for row in open_ones["images"]:
        row["is_ood"] = None
    assert "30 images.\n" in prediction.table(open_ones, width=100)
