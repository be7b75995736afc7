"""Reading compiled programs; and, where a TPU's compiler is installed, what it makes of a training epoch."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import compiled

PROGRAM = """HloModule jit_run_steps, is_scheduled=true

%small (x: (s32[], f32[2])) -> (s32[], f32[2]) {
  %x = (s32[], f32[2]{0}) parameter(0)
  ROOT %copy = (s32[], f32[2]{0}) copy(%x)
}

%crop (x: (s32[], u8[8,16])) -> (s32[], u8[8,16]) {
  %x = (s32[], u8[8,16]{1,0}) parameter(0)
  %row = u8[1,16]{1,0} fusion(%x), backend_config={"window_config":{"estimated_cycles":"20"}}
  ROOT %put = (s32[], u8[8,16]{1,0}) tuple(%x)
}

%more (x: (s32[], u8[8,16])) -> pred[] {
  %constant.7 = s32[]{:T(128)} constant(8)
  ROOT %less = pred[]{:T(512)} compare(%constant.7, %constant.7), direction=LT
}

%body.1 (arg: (s32[], f32[8,4], u8[1000,16])) -> (s32[], f32[8,4], u8[1000,16]) {
  %arg = (s32[]{:T(128)}, f32[8,4]{1,0:T(8,128)}, u8[1000,16]{1,0}) parameter(0)
  %w = f32[8,4]{1,0:T(8,128)S(1)} get-tuple-element(%arg), index=1
  %images = u8[1000,16]{1,0} get-tuple-element(%arg), index=2
  %rows = u8[8,16]{1,0} fusion(%images), kind=kCustom, calls=%gather
  %cropped = (s32[], u8[8,16]{1,0}) while(%rows), condition=%more, body=%crop
  %product = bf16[8,4]{1,0} fusion(%rows, %w), kind=kLoop, metadata={op_name="jit(run_steps)/while/body/closed_call/\
transpose(jvp(Classifier))/backbone/dense/dot_general"}, backend_config={"window_config":{"estimated_cycles":"1500"}}
  %sums-start = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) all-reduce-start(%product), channel_id=1
  %sums = bf16[8,4]{1,0} all-reduce-done(%sums-start)
  %new = f32[8,4]{1,0} add(%w, %sums), backend_config={"window_config":{"estimated_cycles":"30000"}}
  ROOT %all = (s32[], f32[8,4]{1,0}, u8[1000,16]{1,0}) tuple(%arg, %new, %images)
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %first = (s32[], f32[2]{0}) while(%t), condition=%c, body=%small
  %second = (s32[], f32[8,4]{1,0}, u8[1000,16]{1,0}) while(%u), condition=%c, body=%body.1
  ROOT %out = f32[8,4]{1,0} get-tuple-element(%second), index=1
}
"""
MEMORY = SimpleNamespace(argument_size_in_bytes=3 * 2**20, temp_size_in_bytes=2**21)


def lines(target, **options):
    options = {"network": "lenet", "devices": 2, "most": 9, **options}
    return list(compiled.report(PROGRAM, MEMORY, target=target, **options))


def test_a_step_is_the_longest_loop_without_what_does_nothing():
    step = compiled.step_of(PROGRAM)
    assert [operation.name for operation in step] == ["rows", "cropped", "product", "sums-start", "sums", "new"]
    # Stored images are not counted, the eight rows of them are; bf16 of f32 and the rows.
    assert [operation.bytes for operation in step if operation.kind == "fusion"] == [8 * 16, 2 * 32 + 4 * 32]
    assert compiled.size("(bf16[2,3]{1,0:T(8,128)}, f32[], /*index=2*/pred[7])") == 12 + 4 + 7


def test_of_a_tpu_there_are_cycles():
    found = lines("v5e")
    assert found[0] == "LeNet on 2 TPU v5e"
    # With eight rounds of a loop of 20: 31,660 cycles at 1.5 GHz, 468 times.
    assert found[1] == "a step: 31,660 cycles estimated, 0.021 ms at 1.5 GHz; an epoch 0.010 s"
    assert found[2] == "memory of a device: 3 MiB of images and state, 2 MiB beside them"
    assert found[3] == "exchanges a step: 1 (all-reduce), 0.0 MB of each device"
    assert found[5].split() == ["30,000", "add", "f32[8,4]"]
    assert found[6].split() == ["1,500", "fusion", "bf16[8,4]", "gradient/backbone/dense/dot_general"]


def test_of_a_gpu_there_are_bytes():
    found = lines("h100", most=1)
    assert found[0] == "LeNet on 2 H100"
    assert found[1].startswith("a step: 6 kernels, which read and write ")
    assert found[5].split() == ["320", "add", "f32[8,4]"]
    assert len(found) == 6


@pytest.mark.parametrize("words", [("--devices=3",), ("--most=0",), ("--target=abacus",)])
def test_wrong_use(monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["compiled", *words])
    with pytest.raises(SystemExit) as exit_:
        compiled.main()
    assert exit_.value.code == 2


def ask(*words):
    command = [sys.executable, "-m", "benchmarks.compiled", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is not None, reason="a TPU's compiler is installed")
def test_without_the_compiler():
    answer = ask()
    assert answer.returncode == 1
    assert answer.stderr.endswith("error: the compiler for v5e is not installed; pip install '.[tpu]'\n")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs a TPU's compiler (pip install '.[tpu]')")
@pytest.mark.parametrize(("devices", "expected"), [(1, "exchanges a step: 0 (none)"), (8, " (all-reduce), 6.6 MB")])
def test_a_tpu_s_compiler_makes_a_fast_epoch(devices, expected):
    answer = ask(f"--devices={devices}")
    assert answer.returncode == 0, answer.stderr
    assert expected in answer.stdout
    (cycles,) = re.findall(r"a step: ([\d,]+) cycles", answer.stdout)
    # 694,133 with one device; five times as many where a TPU crops and pools as a GPU does.
    assert int(cycles.replace(",", "")) < 900_000
