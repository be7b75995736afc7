"""What `predict` prints of many images: a line each, and no more remarks than a reader reads."""

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


def test_without_a_verdict_none_is_counted():
    open_ones = values(30)
    for row in open_ones["images"]:
        row["is_ood"] = None
    assert "30 images.\n" in prediction.table(open_ones, width=100)
