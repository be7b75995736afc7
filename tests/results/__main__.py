"""Writes everything that is made of the files in results/."""

from tests.results import made

if __name__ == "__main__":
    for path, text in made.files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
