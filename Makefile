# Everything runs in .venv, which is made anew when pyproject.toml changes. `make demo` installs what a user needs;
# the other commands add the tools of the developers. uv is used where it is installed: it is faster than pip.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
READY := .venv/ready
INSTALL := $(if $(shell command -v uv),uv pip install --python $(BIN)/python,$(BIN)/python -m pip install --disable-pip-version-check)
JS := tot_lab/views/explorer/js
JS_READY := $(JS)/node_modules/.package-lock.json

# Without stored bytecode, pytest rewrites the assertions of all test files in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

# The notebooks that need no recording; tests/contract/slow/test_recordings.py runs the others.
RECORDED := $(patsubst data/%.jsonl.gz,notebooks/%.ipynb,$(wildcard data/*.jsonl.gz))
NOTEBOOKS := $(filter-out $(RECORDED),$(wildcard notebooks/*.ipynb))
NBVAL := -p nbval --nbval --nbval-sanitize-with tests/nbval_sanitize.cfg
# Each process of pytest would import the plugins of all packages, for two seconds.
PYTEST := PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/pytest -p xdist --dist loadfile --no-loadscope-reorder
CORES := $(shell getconf _NPROCESSORS_ONLN)
ONE_MORE := -n $(shell expr $(CORES) + 1)  # many tests wait for servers and browsers

.PHONY: demo check test nightly proof lint bench conformance docs gallery clean
demo: $(INSTALLED)      ## the main job: 20 searches, a table, the runs, one HTML report
	$(BIN)/tot-lab demo

# The tests of the other lanes are not imported.
check: $(READY)         ## the fast lane, under a minute: nothing that is marked slow, nightly or proof
	$(PYTEST) -n $(CORES) -m "not slow and not nightly and not proof" \
		$(foreach lane,slow nightly proof,--ignore-glob 'tests/*/$(lane)') tests

test: $(READY) $(JS_READY)  ## everything but nightly and proof, the notebooks included; CI runs this
	-$(BIN)/python tests/support/fetch_weights.py  # 98 MB, once; without it the tests of a real model are skipped
	$(PYTEST) $(ONE_MORE) -m "not nightly and not proof" $(NBVAL) tests $(NOTEBOOKS)

nightly: $(READY) $(JS_READY)  ## real servers, many processes, all values of all axes; before an issue is closed
	-$(BIN)/python tests/support/fetch_weights.py
	$(PYTEST) $(ONE_MORE) -m nightly $(NBVAL) tests $(NOTEBOOKS)

proof: $(READY)         ## comparisons with what others published, long simulations; before an issue is closed
	$(PYTEST) $(ONE_MORE) -m proof tests

lint: $(READY)          ## formatting, lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)         ## what this machine makes of the engine; prints, never fails
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/searches.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/cache.py
	$(BIN)/python benchmarks/gateway.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/serve.py
	-$(BIN)/python benchmarks/explorer.py  # needs Chromium

conformance: $(READY)   ## writes docs/conformance.md: the lines of the published designs, and their tests
	$(BIN)/python tests/contract/test_conformance.py

docs: $(INSTALLED)      ## the documentation site, in site/: open site/index.html; needs no network but to install
	$(INSTALL) --quiet --editable '.[docs]'
	$(BIN)/python docs/build.py
	$(BIN)/zensical build --clean --strict

gallery: $(READY)       ## the pictures of docs/gallery.md anew; needs Chromium
	$(BIN)/python benchmarks/gallery_pictures.py

clean:
	rm -rf .venv build demo runs site

$(INSTALLED): pyproject.toml litellm.lock
	@echo "Installing tot_lab and what it needs into .venv: about 850 MB, one to three minutes, once."
	@echo "pip shows what it downloads, and then nothing for up to a minute while it unpacks the packages."
	$(PYTHON) -m venv .venv
	$(INSTALL) --require-hashes --no-deps -r litellm.lock
	$(INSTALL) --editable .
	touch $(INSTALLED)

$(READY): $(INSTALLED)
	@echo "Installing the tools of the developers into .venv: about 750 MB more, once."
	$(INSTALL) --quiet --editable '.[dev]'
	touch $(READY)

$(JS_READY): $(JS)/package-lock.json
	-npm ci --silent --prefix $(JS)  # without it the tests of the explorer's sources are skipped
