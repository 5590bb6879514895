# The front door. Every target is one script; `make help` says what each leaves behind.
#
#   PYTHON=<interpreter>  one that already has torch: nothing is installed, what is missing is named

.DEFAULT_GOAL := help
.PHONY: help wheel test test-fast test-gpu bench bench-e2e e2e fuses budget op checkout refresh stage compat repin lint clean

# The interpreter that makes .venv: the first of these that vLLM supports.
found := $(PYTHON)
ifndef PYTHON
found = $(or $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14,\
    $(shell $(p) -c 'import sys; (3, 11) <= sys.version_info[:2] < (3, 15) and print("$(p)")' 2>/dev/null))),\
    $(error no Python 3.11 to 3.14 found; install one, or name it with PYTHON=))
endif
python := $(or $(PYTHON),.venv/bin/python)

# Two processes, each with whole files: what a file's tests share is made once.
pytest := OMP_NUM_THREADS=1 $(python) -m pytest --ignore=tests/gpu -n 2 --dist loadfile

# $(call need,group): .venv has what the pin lists under the group, or PYTHON has.
need = @$(found) -m scripts.venv $(1)

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r t d; do printf '%-10s %s\n' "$$t" "$$d"; done

wheel: ## the patched wheel: dist/*.whl (BASE_WHEEL=<file>: laid over that wheel; FORCE=1)
	$(call need,wheel)
	@$(python) -m scripts.wheel

test: ## every test that needs no GPU
	$(call need,test)
	@$(python) -m scripts.checkout
	@$(python) -m scripts.op
	@$(pytest)

test-fast: ## the tests for every change, at most ten minutes
	$(call need,test)
	@$(python) -m scripts.checkout
	@$(python) -m scripts.op
	@$(pytest) -m "not slow"

test-gpu: ## the kernel's tests on the GPU found (gfx115x, or NVIDIA sm_90)
	$(call need,gpu)
	@$(python) -m scripts.gpu_tests

bench: ## the speed tables, on the GPU found: build/bench (a part: SHAPES= T= CONTEXTS= VARIANTS=)
	@$(found) -m scripts.bench --shapes "$(SHAPES)" --tokens "$(T)" --contexts "$(CONTEXTS)" \
	    $(and $(VARIANTS),--variants "$(VARIANTS)")
	@$(found) -m scripts.bench.overhead

bench-e2e: ## MODEL=<model> in the patched vLLM with the fusion on and off, on gfx115x (BATCHES=1,8)
	@$(found) -m scripts.bench.e2e --model "$(MODEL)" --batches "$(BATCHES)"

e2e: ## whole models on a simulated gfx1151, fusion on and off: build/e2e/report.md (MODELS=<names>)
	$(call need,test)
	@$(python) -m scripts.checkout
	@PYTHONPATH=tests/models:tests/integration $(python) -m e2e $(MODELS)

fuses: ## what fuses, for every model class of vLLM's registry: build/fuses/table.md (CLASSES=<names>)
	$(call need,test)
	@$(python) -m scripts.checkout
	@PYTHONPATH=tests/models:tests/integration $(python) -m what_fuses $(CLASSES)

budget: ## what the gfx11 code costs: registers, instructions, memory round trips, size, time
	$(call need,op)
	@$(python) -m scripts.budget

op: ## the op library and the code objects: build/op
	$(call need,op)
	@$(python) -m scripts.op

checkout: ## the patched vLLM tree: build/vllm (VLLM_SDIST=<file> or VLLM_GIT=<repository>: from there)
	$(call need,checkout)
	@$(python) -m scripts.checkout

refresh: ## writes patches/, vllm_overlay/ and csrc/ back from the commits in build/vllm
	$(call need,checkout)
	@$(python) -m scripts.refresh

stage: ## the upstream pull request: branch stage of build/vllm, and build/stage
	$(call need,lint)
	@$(python) -m scripts.stage

compat: ## the series tried on VLLM=<version or git checkout>, patch by patch: build/compat/*.md
	@VLLM_SDIST= $(found) -m scripts.venv test
	@$(python) -m scripts.compat "$(VLLM)"

repin: ## moves the pin to VLLM=<version>, or stops at a conflict (ABORT=1: goes back)
	$(call need,checkout)
	@$(python) -m scripts.repin $(if $(filter-out 0,$(ABORT)),--abort) $(VLLM)

lint: ## vLLM's settings over what goes into vLLM, ours over the rest
	$(call need,lint)
	@$(python) -m scripts.checkout
	@$(python) -m scripts.lint

clean: ## removes build/ (the cache included) and dist/
	rm -rf build dist
