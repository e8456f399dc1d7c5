"""Bring the charting library that pages carry into the package: Vega, Vega-Lite and vega-embed, with their licenses.

    python tests/references/fetch_vega.py

Takes the versions below from npm. What names a source map is left out: a page makes no request.
"""

import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSIONS = {"vega": "6.4.0", "vega-lite": "6.4.3", "vega-embed": "7.3.0"}
TARGET = Path(__file__).parents[2] / "zeroplan" / "page" / "vega"


def main():
    TARGET.mkdir(exist_ok=True)
    licenses = []
    for name, version in VERSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, check=True, capture_output=True)
            (packed,) = Path(folder).glob("*.tgz")
            with tarfile.open(packed) as archive:
                read = lambda path: archive.extractfile(f"package/{path}").read().decode()
                script = re.sub(r"^//# sourceMappingURL=.*$", "", read(f"build/{name}.min.js"), flags=re.M)
                (TARGET / f"{name}.min.js").write_text(script.strip() + "\n")
                licenses.append(f"{name} {version}\n\n{read('LICENSE').strip()}\n")
    (TARGET / "LICENSE").write_text("\n\n".join(licenses))


if __name__ == "__main__":
    main()
