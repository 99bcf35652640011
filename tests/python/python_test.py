#!/usr/bin/env python3
"""Tests of the Python package through the shared library, without a GPU and without any framework.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_test.py [PACKAGE_FOLDER] [unittest arguments]
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

PACKAGE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else None
if PACKAGE:
    sys.path.insert(0, PACKAGE)

import attnforge  # noqa: E402
from attnforge import _arrays, _formats, _options, _plans  # noqa: E402
from attnforge._calls import arguments as _arguments  # noqa: E402

TEXT = "fwd bf16 batch=2 num_heads=8:2 seqlen=100:300 head_dim=64:72 causal lse window_left=50"


def run_python(code, **environment):
    env = {**os.environ, "PYTHONPATH": PACKAGE or os.environ.get("PYTHONPATH", ""), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


class FakeArray:
    """A device array by __cuda_array_interface__; its memory is never touched here."""

    def __init__(self, shape, typestr="<f2", pointer=0x10000, strides=None):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, False),
            "strides": strides,
            "version": 3,
        }


class DLTensor(ctypes.Structure):
    class Device(ctypes.Structure):
        _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]

    class DataType(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class FakeDlpack:
    """A device array by DLPack, bfloat16, with a byte offset."""

    def __init__(self, shape, strides=None, device_type=2, code=4, bits=16):
        self.dropped = False
        self._tensor = DLTensor()
        self._tensor.data = 0x20000
        self._tensor.byte_offset = 64
        self._tensor.device.device_type = device_type
        self._tensor.device.device_id = 1
        self._tensor.ndim = len(shape)
        self._tensor.dtype.code, self._tensor.dtype.bits, self._tensor.dtype.lanes = code, bits, 1
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        if strides:
            self._strides = (ctypes.c_int64 * len(strides))(*strides)
            self._tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self):
        return self._tensor.device.device_type, self._tensor.device.device_id

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class LibraryPlacesTest(unittest.TestCase):
    """Which library a copy of the package takes; no variable names one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.realpath(folder.name)
        self.library = os.path.realpath(attnforge.library_path())

    def lay(self, *parts, works=True):
        path = os.path.join(self.root, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if works:
            os.symlink(self.library, path)
        else:
            with open(path, "w") as file:
                file.write("not a library")
        return path

    def taken_by(self, *package):
        shutil.copytree(os.path.dirname(attnforge.__file__), os.path.join(self.root, *package, "attnforge"))
        env = {name: value for name, value in os.environ.items() if name != "ATTNFORGE_LIBRARY"}
        env["PYTHONPATH"] = os.path.join(self.root, *package)
        code = "import attnforge; print(attnforge.library_path())"
        return subprocess.run([sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, timeout=60)

    def test_an_installed_package_finds_the_library_of_its_prefix(self):
        for libdir in (["lib"], ["lib64"], ["lib", "x86_64-linux-gnu"]):
            with self.subTest(libdir):
                expected = self.lay(*libdir, "libattnforge.so.0.1")
                self.assertEqual(self.taken_by("share", "attnforge", "python").stdout.strip(), expected)
                os.remove(expected)
                shutil.rmtree(os.path.join(self.root, "share"))

    def test_a_wheel_finds_the_library_inside_it(self):
        expected = self.lay("attnforge", "lib", "libattnforge.so.0.1")
        shutil.copytree(os.path.dirname(attnforge.__file__), os.path.join(self.root, "attnforge"), dirs_exist_ok=True)
        run = run_python("import attnforge; print(attnforge.library_path())", ATTNFORGE_LIBRARY="", PYTHONPATH=self.root)
        self.assertEqual(run.stdout.strip(), expected)

    def test_a_checkout_takes_its_release_build(self):
        for name in ("asan", "dev", "tsan"):
            self.lay("build", name, "lib", "libattnforge.so", works=False)
        expected = self.lay("build", "release", "lib", "libattnforge.so")
        self.assertEqual(self.taken_by("python").stdout.strip(), expected)

    def test_a_checkout_never_takes_a_build_with_a_sanitizer(self):
        self.lay("build", "asan", "lib", "libattnforge.so")
        self.lay("build", "tsan", "lib", "libattnforge.so")
        self.lay("build-asan", "lib", "libattnforge.so")
        run = self.taken_by("python")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("libattnforge.so was not found", run.stderr)
        expected = self.lay("build", "dev", "lib", "libattnforge.so")
        shutil.rmtree(os.path.join(self.root, "python"))
        self.assertEqual(self.taken_by("python").stdout.strip(), expected)


class ProblemTest(unittest.TestCase):
    def test_integrations_are_attributes_that_are_imported_when_asked_for(self):
        with mock.patch("importlib.import_module") as asked:
            self.assertIs(attnforge.integrations, asked.return_value)
        asked.assert_called_once_with("attnforge.integrations")
        with self.assertRaisesRegex(AttributeError, "module 'attnforge' has no attribute 'nothing'"):
            attnforge.nothing

    def test_text_round_trip(self):
        problem = attnforge.Problem.parse(TEXT)
        self.assertEqual(attnforge.Problem.parse(str(problem)), problem)
        self.assertEqual((problem.batch, problem.num_heads_q, problem.num_heads_kv), (2, 8, 2))
        self.assertEqual((problem.seqlen_q, problem.seqlen_kv), (100, 300))
        self.assertEqual((problem.head_dim, problem.head_dim_v), (64, 72))
        self.assertEqual((problem.causal, problem.lse, problem.window_left), (True, True, 50))

    def test_every_field_goes_into_the_text_and_comes_back(self):
        texts = (
            "fwd q=fp16 k=bf16 v=bf16 o=fp32 batch=3 num_heads=6:2 seqlen=7:0 head_dim=64:128 layout=bhsd causal lse "
            "window_left=5 softcap=0.1 softmax_scale=1e-05 alignment=8",
            "fwd fp32 head_dim=128 tf32 sinks rope=interleaved rope_dim=32 window_left=3 window_right=4 layout=packed_qkv",
            "fwd fp16 batch=2 seqlen=100 lengths=packed tokens=150:90",
            "fwd fp16 batch=2 seqlen=1:100 lengths=used page_size=16 batch_invariant",
            "fwd q=bf16 k=int8 v=e4m3 o=bf16 seqlen=1:100 kv_scale=group64",
            "fwd q=bf16 k=int4 v=bf16 o=bf16 seqlen=1:100 kv_scale=token kv_zero",
            "fwd e4m3 o=fp16 seqlen=100 kv_scale=head fast_sums",
            "fwd batch=3 num_heads=4:2 seqlen=100 blocks=128:64 mask_heads=2 mask_batch=3 mask_bits density=0.25",
            'fwd args="float* a, int b" score="s * 2" mask="k <= q"',
            'bwd args="float* a, float* b" score="s + a[k] + b[q]" dargs="a, b"',
            "bwd fp16 num_heads=4:2 seqlen=100 head_dim=64:72 causal deterministic accumulate dlse gradients=fp32",
            "merge fp32 o=bf16 num_heads=4 seqlen=100 head_dim=72 lse parts=3",
            "append bf16 num_heads=4:2 seqlen=1:100 head_dim=72 rope=half queries lengths_after",
            "fwd bf16 batch=2 num_heads=4 seqlen=100 blocks=64:32 mask_heads=4 mask_batch=2 mask_bits density=0.25 "
            r'args="float* slope, int window" score="s + slope[head]" mask="k <= q\n && q - k <= window"',
        )
        # Numbers go by themselves too.
        fields = attnforge.Problem.__dataclass_fields__
        alone = [str(attnforge.Problem(**{name: 2.0})) for name, field in fields.items() if field.type is float and name != "density"]
        defaults, changed = attnforge.Problem(), set()
        for text in (*texts, *alone):
            problem = attnforge.Problem.parse(text)
            self.assertEqual(attnforge.Problem.parse(problem.words()), problem)
            self.assertEqual(str(problem), str(attnforge.Problem.parse(str(problem))))
            changed |= {name for name in fields if getattr(problem, name) != getattr(defaults, name)}
        self.assertEqual(changed, set(fields))

    def test_tf32_is_a_flag_of_fp32(self):
        problem = attnforge.Problem.parse("fwd fp32 seqlen=9 tf32")
        self.assertIs(problem.tf32, True)
        self.assertIn(" tf32", str(problem))
        self.assertIs(attnforge.Problem.parse("fwd fp32 seqlen=9").tf32, False)
        with self.assertRaisesRegex(attnforge.InvalidError, "tf32 needs fp32"):
            attnforge.Problem.parse("fwd bf16 tf32")

    def test_defaults_follow_the_queries(self):
        problem = attnforge.Problem(num_heads_q=4, seqlen_q=9, head_dim=16, dtype_q="fp16")
        self.assertEqual((problem.num_heads_kv, problem.seqlen_kv, problem.head_dim_v), (4, 9, 16))
        self.assertEqual(problem.dtype_o, "fp16")
        self.assertEqual(attnforge.Problem.parse(str(problem)), problem)

    def test_bad_words_are_named(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "head_dim"):
            attnforge.Problem.parse("fwd bf16 head_dim=13")
        with self.assertRaisesRegex(ValueError, "q=int4 must be"):
            str(attnforge.Problem(dtype_q="int4", dtype_o="bf16"))
        with self.assertRaisesRegex(attnforge.AttnforgeError, "banana"):
            attnforge.Problem.parse("fwd bf16 banana=1")


    def test_rope(self):
        problem = attnforge.Problem.parse("fwd bf16 head_dim=64 rope=half rope_dim=32")
        self.assertEqual((problem.rope, problem.rope_dim), ("half", 32))
        self.assertEqual(attnforge.Problem.parse(str(problem)), problem)
        self.assertIn(" rope=interleaved", str(attnforge.Problem(rope="interleaved")))
        with self.assertRaisesRegex(attnforge.InvalidError, "rope=neox"):
            str(attnforge.Problem(rope="neox"))


class ToolsTest(unittest.TestCase):
    def test_supported(self):
        self.assertEqual(attnforge.supported("fwd bf16 seqlen=128 head_dim=64", arch="86"), (True, ""))
        with self.assertRaises(attnforge.InvalidError):
            attnforge.supported("fwd bf16 head_dim=13", arch="86")

    def test_inspect_of_an_arch_that_is_not_here(self):
        for arch in ("sm_86", "sm_89", "sm_90a"):
            found = attnforge.inspect(TEXT, arch=arch, compile=False, max_candidates=5)
            self.assertEqual(found["problem"], str(attnforge.Problem.parse(TEXT)))
            self.assertLessEqual(len(found["candidates"]), 5)
            self.assertIn("__global__", found["source"])
            self.assertEqual(found["device"]["arch"], arch)

    def test_inspect_refuses_a_config_that_is_none(self):
        with self.assertRaises(attnforge.InvalidError):
            attnforge.inspect(TEXT, arch="86", config="fwd_nothing a=1", compile=False)

    def test_unknown_arch(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "12345"):
            attnforge.supported(TEXT, arch="12345")

    def test_tune_checks_its_arguments(self):
        with self.assertRaisesRegex(ValueError, "rigor"):
            attnforge.tune(TEXT, rigor="reckless")
        with self.assertRaisesRegex(ValueError, "q, k and v"):
            attnforge.tune()
        with self.assertRaisesRegex(ValueError, "causal"):
            attnforge.tune(TEXT, causal=True)

    def test_errors_belong_to_their_thread(self):
        texts = {}

        def work(name):
            for _ in range(200):
                try:
                    attnforge.Problem.parse(f"fwd bf16 {name}=1")
                except attnforge.InvalidError as error:
                    texts.setdefault(name, set()).add(str(error))

        threads = [threading.Thread(target=work, args=(f"word{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, seen in texts.items():
            self.assertEqual(len(seen), 1)
            self.assertIn(name, seen.pop())


class ArraysTest(unittest.TestCase):
    def test_cuda_array_interface(self):
        backend = _arrays.backend_of(FakeArray((1, 2, 3, 8)))
        view = backend.view("q", FakeArray((1, 2, 3, 8)))
        self.assertEqual(view[:5], (0x10000, (1, 2, 3, 8), (48, 24, 8, 1), _formats.FP16, 0))
        strided = backend.view("q", FakeArray((1, 2, 3, 8), strides=(960, 480, 160, 2)))
        self.assertEqual(strided[2], (480, 240, 80, 1))

    def test_dlpack(self):
        array = FakeDlpack((2, 3, 4, 16))
        view = _arrays.backend_of(array).view("k", array)
        self.assertEqual(view[:5], (0x20040, (2, 3, 4, 16), (192, 64, 16, 1), _formats.BF16, 1))
        array = FakeDlpack((2, 3, 4, 16), strides=(999, 64, 16, 1))
        self.assertEqual(_arrays.backend_of(array).view("k", array)[2], (999, 64, 16, 1))

    def test_int32_is_for_lengths_only(self):
        for array in (FakeArray((3,), "<i4"), FakeDlpack((3,), code=0, bits=32)):
            view = _arrays.backend_of(array).view("used_kv", array, allowed=_formats.INTEGERS)
            self.assertEqual((view.shape, view.strides, view.code), ((3,), (1,), _formats.INT32))
            with self.assertRaisesRegex(attnforge.InvalidError, "q has .*supported"):
                _arrays.backend_of(array).view("q", array)
        for array in (FakeArray((3,)), FakeDlpack((3,))):
            with self.assertRaisesRegex(attnforge.InvalidError, "used_kv has .*supported; use int32"):
                _arrays.backend_of(array).view("used_kv", array, allowed=_formats.INTEGERS)

    def test_arguments_of_texts_are_of_any_dtype(self):
        for typestr, (code, bits), found in (
            ("<f4", (2, 32), _formats.FP32),
            ("<f2", (2, 16), _formats.FP16),
            ("<i4", (0, 32), _formats.INT32),
            ("|b1", (6, 8), _formats.BOOL),
        ):
            for array in (FakeArray((3,), typestr), FakeDlpack((3,), code=code, bits=bits)):
                view = _arrays.backend_of(array).view("args['a']", array, allowed=_formats.ANY_DTYPE)
                self.assertEqual((view.strides, view.code), ((1,), found))
        for array in (FakeArray((3,), "<i8"), FakeDlpack((3,), code=0, bits=64)):
            with self.assertRaisesRegex(attnforge.InvalidError, "use float16, bfloat16, float32, int32 or bool"):
                _arrays.backend_of(array).view("args['a']", array, allowed=_formats.ANY_DTYPE)

    def test_what_is_no_device_array(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "q is a list"):
            attnforge.attention([1], [2], [3])
        host = FakeDlpack((1, 1, 1, 8), device_type=1)
        with self.assertRaisesRegex(attnforge.InvalidError, "q is a .*FakeDlpack in host memory"):
            attnforge.attention(host, host, host)
        with self.assertRaisesRegex(attnforge.InvalidError, "v has typestr <i4"):
            _arrays.backend_of(FakeArray((1,), "<i4")).view("v", FakeArray((1,), "<i4"))

    def test_strides_of_parts_of_elements_are_refused(self):
        array = FakeArray((1, 2, 3, 8), strides=(96, 49, 16, 2))
        with self.assertRaisesRegex(attnforge.InvalidError, "q has strides of .96, 49, 16, 2. bytes"):
            _arrays.backend_of(array).view("q", array)

    def test_dlpack_producers_are_told_the_stream_of_the_run(self):
        asked = []
        array = FakeDlpack((2, 3, 4, 16))
        give = array.__dlpack__

        class Watched:
            __dlpack_device__ = staticmethod(array.__dlpack_device__)

            @staticmethod
            def __dlpack__(stream=None):
                asked.append(stream)
                return give()

        for stream in (None, 0, 0x77):
            _arrays.backend_of(Watched()).view("q", Watched(), stream)
        self.assertEqual(asked, [1, 1, 0x77])  # 1 is the default stream; 0 means nothing in DLPack

    def test_alignment_looks_atused_strides_only(self):
        def alignment(pointer, strides, shape):
            array = _arrays.Array(pointer, shape, strides, _formats.FP16, 0)
            return _arguments.alignment_of(pointer | _arguments.used_strides(array).bits)

        self.assertEqual(alignment(0x10000, (4096, 64, 8, 1), (2, 64, 8, 8)), 16)
        self.assertEqual(alignment(0x10008, (4096, 64, 8, 1), (2, 64, 8, 8)), 8)
        self.assertEqual(alignment(0x10000, (4096, 66, 8, 1), (2, 64, 8, 8)), 4)
        self.assertEqual(alignment(0x10000, (3, 64, 1, 1), (1, 64, 1, 8)), 16)
        self.assertEqual(alignment(0x10002, (4096, 64, 8, 1), (2, 64, 8, 8)), 2)


class AttentionArgumentsTest(unittest.TestCase):
    """Everything that is refused before a plan is asked for."""

    def call(self, q=(1, 8, 4, 64), k=(1, 8, 4, 64), v=(1, 8, 4, 64), out=(1, 8, 4, 64), **options):
        arrays = [FakeArray(shape) for shape in (q, k, v)]
        return attnforge.attention(*arrays, out=out and FakeArray(out), **options)

    def test_shapes(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "four dimensions"):
            self.call(q=(8, 4, 64))
        with self.assertRaisesRegex(attnforge.InvalidError, "k has batch 2"):
            self.call(k=(2, 8, 4, 64), v=(2, 8, 4, 64))
        with self.assertRaisesRegex(attnforge.InvalidError, "differ"):
            self.call(v=(1, 9, 4, 64))
        with self.assertRaisesRegex(attnforge.InvalidError, "head_dim 64 and k has 32"):
            self.call(k=(1, 8, 4, 32))
        with self.assertRaisesRegex(attnforge.InvalidError, "out has shape"):
            self.call(out=(1, 8, 4, 32))

    def test_options(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "layout"):
            self.call(layout="sbhd")
        with self.assertRaisesRegex(attnforge.InvalidError, "softmax_scale"):
            self.call(softmax_scale=0.0)
        with self.assertRaisesRegex(attnforge.InvalidError, "out="):
            self.call(out=None)
        with self.assertRaisesRegex(attnforge.InvalidError, "policy"):
            attnforge.configure(policy="hope")

    def test_last_dimension_must_be_contiguous(self):
        q = FakeArray((1, 8, 4, 64), strides=(8192, 1024, 256, 4))
        k = FakeArray((1, 8, 4, 64))
        with self.assertRaisesRegex(attnforge.InvalidError, "last dimension of q"):
            attnforge.attention(q, k, k, out=FakeArray((1, 8, 4, 64)))

    def test_window(self):
        self.assertEqual(_options.window_of(None, False), (-1, -1))
        self.assertEqual(_options.window_of(7, False), (7, 7))
        self.assertEqual(_options.window_of(7, True), (7, 0))
        self.assertEqual(_options.window_of((3, None), False), (3, -1))
        self.assertEqual(_options.window_of([3, 4], True), (3, 4))

    def test_problem_of_tensors(self):
        q, k = FakeArray((2, 5, 4, 64)), FakeArray((2, 7, 2, 64))
        problem, device = _arguments.problem_of(q, k, k, causal=True, return_lse=True)
        self.assertEqual(device, 0)
        self.assertEqual(
            problem,
            attnforge.Problem.parse("fwd fp16 batch=2 num_heads=4:2 seqlen=5:7 head_dim=64 causal lse"),
        )
        q, k = FakeArray((2, 4, 5, 64)), FakeArray((2, 2, 7, 64))
        problem, _ = _arguments.problem_of(q, k, k, layout="bhsd")
        self.assertEqual((problem.seqlen_q, problem.num_heads_q, problem.layout), (5, 4, "bhsd"))


    def test_rope_of_tensors(self):
        q, k = FakeArray((2, 5, 4, 64)), FakeArray((2, 7, 2, 64))
        cos, sin = FakeArray((9, 16), "<f4"), FakeArray((9, 16), "<f4")
        for interleaved, word in ((False, "half"), (True, "interleaved")):
            problem, _ = _arguments.problem_of(q, k, k, rope=(cos, sin), rope_interleaved=interleaved)
            self.assertEqual((problem.rope, problem.rope_dim), (word, 32))
        bad = (
            (FakeArray((9, 16)), sin, "cos of rope is fp16"),
            (cos, FakeArray((9, 16, 1), "<f4"), "sin of rope"),
            (cos, FakeArray((9, 16), "<f4", strides=(4, 36)), "contiguous"),
            (cos, FakeArray((8, 16), "<f4"), "have shapes"),
        )
        for first, second, said in bad:
            with self.assertRaisesRegex(attnforge.InvalidError, said):
                _arguments.problem_of(q, k, k, rope=(first, second))


class ReferenceTest(unittest.TestCase):
    def test_arrays_of_numpy(self):
        """python_reference_test.py has torch's."""
        try:
            import numpy
        except ImportError:
            self.skipTest("there is no numpy")
        random = numpy.random.default_rng(1)
        for dtype in ("float32", "float16"):
            q, k, v = (random.standard_normal((2, 9, 2, 16)).astype(dtype) for _ in range(3))
            o, lse = attnforge.reference(q, k[:, ::-1][:, ::-1], v, return_lse=True)
            s = numpy.einsum("bqhd,bkhd->bhqk", q.astype("float64"), k.astype("float64")) / 4
            p = numpy.exp(s)
            self.assertEqual((o.dtype, lse.dtype, o.shape), (q.dtype, numpy.dtype("float32"), q.shape))
            self.assertTrue(numpy.allclose(lse, numpy.log(p.sum(-1)), atol=1e-5))
            wanted = numpy.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), v.astype("float64"))
            self.assertTrue(numpy.allclose(o, wanted, atol=1e-3 if dtype == "float16" else 1e-5))


class PlanCacheTest(unittest.TestCase):
    def test_keeps_the_newest(self):
        cache = _plans.PlanCache(limit=3)
        for i in range(5):
            cache.put(i, f"plan {i}")
        self.assertEqual(list(cache), ["plan 2", "plan 3", "plan 4"])
        self.assertIsNone(cache.get(0))
        self.assertEqual(cache.get(4), "plan 4")
        cache.clear()
        self.assertEqual(len(cache), 0)


class RunTest(unittest.TestCase):
    """On the fake driver of tests/support/fake_driver/fake_driver.cpp: everything but the arithmetic."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.driver = ctypes.CDLL("libcuda.so.1")
            cls.driver.fake_reset()
        except (OSError, AttributeError):
            raise unittest.SkipTest("the driver is not the fake one")
        cls.driver.fake_last_argument.restype = ctypes.c_void_p
        cls.driver.fake_last_stream.restype = ctypes.c_void_p

    def setUp(self):
        self.driver.fake_reset()

    def test_attention_launches_on_the_callers_stream_and_remembers_the_plan(self):
        attnforge.plan_cache.clear()
        q, k = FakeArray((2, 64, 4, 64), pointer=0x100000), FakeArray((2, 64, 2, 64), pointer=0x200000)
        o = FakeArray((2, 64, 4, 64), pointer=0x300000)
        for call in range(1, 4):
            self.assertIs(attnforge.attention(q, k, k, causal=True, out=o, stream=0x77), o)
            self.assertEqual(self.driver.fake_launches(), call)
        self.assertEqual(self.driver.fake_last_argument(), 0x100000)
        self.assertEqual(self.driver.fake_last_stream(), 0x77)
        self.assertEqual(len(attnforge.plan_cache), 1)
        (plan,) = attnforge.plan_cache
        self.assertEqual(plan.provenance, "estimated")
        self.assertTrue(plan.config)
        # Other strides of the same shapes are the same plan.
        strided = FakeArray((2, 64, 4, 64), pointer=0x400000, strides=(64 * 1024, 1024, 128, 2))
        attnforge.attention(strided, k, k, causal=True, out=o)
        self.assertEqual(len(attnforge.plan_cache), 1)

    def test_what_is_chosen_while_a_graph_is_captured_is_for_that_call(self):
        attnforge.configure(policy="first_run")
        q, o = FakeArray((1, 32, 2, 64)), FakeArray((1, 32, 2, 64), pointer=0x40000)
        chosen = []
        made = _plans.Plan.__init__

        def init(plan, problem, device, choice):
            chosen.append(choice.policy)
            made(plan, problem, device, choice)

        with mock.patch.object(_plans.Plan, "__init__", init):
            with mock.patch.object(_plans, "_is_capturing", lambda: True):
                attnforge.attention(q, q, q, out=o)
            self.assertEqual(len(attnforge.plan_cache), 0)
            attnforge.attention(q, q, q, out=o)
            attnforge.attention(q, q, q, out=o)
        self.assertEqual(chosen, ["estimate", "first_run"], "the next one tunes, and is remembered")
        self.assertEqual(self.driver.fake_launches(), 3)

    def test_a_workspace_belongs_to_its_run(self):
        """Two runs share none, whatever their streams are numbered: each is allocated and freed on the stream of its run."""
        events = []

        class Driver:
            @staticmethod
            def cuMemAllocAsync(address, size, stream):
                events.append(("alloc", size.value, stream.value))
                address._obj.value = 0x50000000 * len(events) + 1
                return 0

            @staticmethod
            def cuMemFreeAsync(address, stream):
                events.append(("free", address.value, stream.value))
                return 0

        q, k, o = (FakeArray((1, 64, 2, 64), pointer=pointer) for pointer in (0x100000, 0x200000, 0x300000))
        attnforge.configure(family="fwd_materialized")
        try:
            with mock.patch.object(_arrays, "_driver", lambda: Driver):
                for stream in (0x77, 0x77, 0x78):
                    attnforge.attention(q, k, k, out=o, stream=stream)
            (plan,) = attnforge.plan_cache
            self.assertGreater(plan.workspace_bytes, 0)
        finally:
            attnforge.configure(family="")
        self.assertEqual([event[0] for event in events], ["alloc", "free"] * 3)
        self.assertEqual([event[2] for event in events], [0x77] * 4 + [0x78] * 2)
        for event in events[::2]:
            self.assertGreaterEqual(event[1], plan.workspace_bytes + 255)  # aligned to 256 inside

    def test_memory_that_the_driver_does_not_give_is_an_error(self):
        q, k, o = (FakeArray((1, 64, 2, 64), pointer=pointer) for pointer in (0x100000, 0x200000, 0x300000))
        attnforge.configure(family="fwd_materialized")
        try:
            with mock.patch.object(_arrays, "_driver", lambda: mock.Mock(cuMemAllocAsync=lambda *_: 2)):
                with self.assertRaisesRegex(attnforge.InvalidError, "no workspace of"):
                    attnforge.attention(q, k, k, out=o)
        finally:
            attnforge.configure(family="")

    def test_lse(self):
        q, k = FakeArray((1, 16, 2, 64)), FakeArray((1, 16, 2, 64))
        o, lse = FakeArray((1, 16, 2, 64), pointer=0x40000), FakeArray((1, 2, 16), "<f4", pointer=0x50000)
        self.assertEqual(attnforge.attention(q, k, k, return_lse=True, out=(o, lse)), (o, lse))
        with self.assertRaisesRegex(attnforge.InvalidError, "lse of out"):
            attnforge.attention(q, k, k, return_lse=True, out=(o, FakeArray((1, 16, 2), "<f4")))

    def test_rope(self):
        attnforge.plan_cache.clear()
        q, o = FakeArray((1, 16, 2, 64)), FakeArray((1, 16, 2, 64), pointer=0x40000)
        tables = FakeArray((20, 32), "<f4"), FakeArray((20, 32), "<f4")
        launches, freed = self.driver.fake_launches(), []

        def allocate(address, size, queue):
            address._obj.value = 0x700000
            return 0

        memory = mock.Mock(cuMemAllocAsync=allocate, cuMemFreeAsync=lambda address, queue: freed.append(address.value))
        with mock.patch.object(_arrays, "_driver", lambda: memory):
            attnforge.attention(q, q, q, out=o, rope=tables, rope_offset=4)
        self.assertEqual(freed, [0x700000], "rotated q and k")
        attnforge.attention(q, q, q, out=o)
        self.assertEqual(self.driver.fake_launches(), launches + 3, "the rotation is a step of its own")
        self.assertEqual([plan.problem.rope for plan in attnforge.plan_cache], ["half", "none"])
        with mock.patch.object(_arrays, "_driver", lambda: memory):
            with self.assertRaisesRegex(attnforge.InvalidError, "rows 5 to 20"):
                attnforge.attention(q, q, q, out=o, rope=tables, rope_offset=5)

    def test_no_jit(self):
        q, o = FakeArray((1, 16, 2, 88)), FakeArray((1, 16, 2, 88), pointer=0x40000)
        attnforge.configure(no_jit=True)
        try:
            with self.assertRaisesRegex(attnforge.NotReadyError, "attnforge tune"):
                attnforge.attention(q, q, q, out=o)
        finally:
            attnforge.configure(no_jit=False)

    def test_no_jit_is_of_ops_and_tuning_too(self):
        """Whether it comes before the context or after it."""
        code = """if True:
            import attnforge
            from attnforge._calls.rest import clear_rest
            class Array:
                def __init__(self, pointer, shape, kind="<f2"):
                    self.__cuda_array_interface__ = {"shape": shape, "typestr": kind, "data": (pointer, False), "version": 3}
            q, lse, mass = Array(0x10000, (1, 16, 2, 64)), Array(0x20000, (1, 2, 16), "<f4"), Array(0x30000, (1, 2, 16), "<f4")
            calls = {
                "zeros": lambda: clear_rest(0, 0, [(0x10000, (8, 2, 16), 2, 0x20000)]),
                "mass": lambda: attnforge.key_mass(q, q, lse, out=mass),
                "mask": lambda: attnforge.BlockMask.from_text("q >= k", 64, device=0),
                "tune": lambda: attnforge.tune("fwd bf16 seqlen=128 head_dim=64"),
            }
            def refused(names):
                for name in names:
                    try:
                        calls[name]()
                    except attnforge.NotReadyError:
                        yield name
            attnforge.configure(no_jit=True)
            print(*refused(calls))
            attnforge.configure(no_jit=False)
            print(*refused(["zeros"]))
            attnforge.configure(no_jit=True)
            print(*refused(calls))
        """
        done = run_python(code)
        self.assertEqual((done.returncode, done.stdout), (0, "zeros mass mask tune\n\nmass mask tune\n"), done.stderr)

    def test_stats_count_compiles_and_what_was_not_tuned(self):
        q, o = FakeArray((1, 16, 2, 96)), FakeArray((1, 16, 2, 96), pointer=0x40000)
        before = attnforge.stats()
        for options in ({"causal": True}, {"causal": True}, {"window": 3}):
            attnforge.attention(q, q, q, out=o, **options)
        after = attnforge.stats(device=0)
        grown = {name: after[name] - before[name] for name in before}
        self.assertEqual((grown["plans"], grown["untuned_plans"]), (2, 2))
        self.assertIn(grown["compiles"], (1, 2))
        attnforge.attention(q, q, q, out=o, causal=True)
        self.assertEqual(attnforge.stats(), after, "a call like an earlier one")
        attnforge.configure(policy="cached_only")
        try:
            with self.assertRaisesRegex(attnforge.NotReadyError, "attnforge tune"):
                attnforge.attention(q, q, q, out=o, causal=True)
        finally:
            attnforge.configure(policy="estimate")
        self.assertEqual(attnforge.stats(), after)

    def test_problems_are_traced_once_for_the_tuner(self):
        code = """if True:
            import attnforge
            class Array:
                def __init__(self, pointer, seqlen):
                    self.__cuda_array_interface__ = {"shape": (1, seqlen, 2, 64), "typestr": "<f2", "data": (pointer, False), "version": 3}
            for seqlen in (1000, 0, 1024, 1000, 64):
                x = [Array(0x100000 * i, seqlen) for i in (1, 2, 3, 4)]
                attnforge.attention(*x[:3], out=x[3])
            attnforge.configure(no_jit=True)
            try:
                attnforge.attention(*x[:3], out=x[3], causal=True)
            except attnforge.NotReadyError:
                print("refused")
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "problems.txt")
            for _ in range(2):  # two processes, and a line is there once
                done = run_python(code, ATTNFORGE_TRACE=path)
                self.assertEqual((done.returncode, done.stdout), (0, "refused\n"), done.stderr)
            with open(path) as file:
                lines = file.read().splitlines()
            self.assertEqual([attnforge.Problem.parse(line).seqlen_q for line in lines], [1024, 64, 64])
            self.assertTrue(attnforge.Problem.parse(lines[2]).causal, "also what was refused")
            done = run_python(code, ATTNFORGE_TRACE=folder)
            self.assertIn("is not written: Is a directory", done.stderr)

    def test_family(self):
        q, o = FakeArray((1, 16, 2, 64)), FakeArray((1, 16, 2, 64), pointer=0x40000)
        attnforge.configure(family="fwd_naive")
        try:
            attnforge.attention(q, q, q, out=o)
            (plan,) = attnforge.plan_cache
            self.assertTrue(plan.config.startswith("fwd_naive "), plan.config)
        finally:
            attnforge.configure(family="")
        self.assertEqual(len(attnforge.plan_cache), 0, "plans made before are forgotten")


    def test_config(self):
        q, o = FakeArray((1, 16, 2, 64)), FakeArray((1, 16, 2, 64), pointer=0x40000)
        attnforge.configure(config="fwd_naive dtype=2")
        try:
            with self.assertRaises(attnforge.InvalidError):
                attnforge.attention(q, q, q, out=o)
            problem = attnforge.Problem(num_heads_q=2, seqlen_q=16, dtype_q="fp16")
            forced = attnforge.inspect(problem, compile=False, max_candidates=2)["candidates"][1]["config"]
            attnforge.configure(config=forced)
            attnforge.attention(q, q, q, out=o)
            (plan,) = attnforge.plan_cache
            self.assertEqual(plan.config, forced)
        finally:
            attnforge.configure(config="")
        attnforge.attention(q, q, q, out=o)
        (plan,) = attnforge.plan_cache
        self.assertNotEqual(plan.config, forced)


class LibraryTest(unittest.TestCase):
    def test_version_and_path(self):
        self.assertRegex(attnforge.version(), r"^\d+\.\d+\.\d+$")
        self.assertTrue(attnforge.library_path())

    def test_import_brings_in_no_other_package(self):
        code = "import sys, attnforge; print(sorted(m for m in ('torch', 'cupy', 'numpy') if m in sys.modules))"
        done = run_python(code)
        self.assertEqual(done.stdout.strip(), "[]", done.stderr)

    def test_missing_library_says_what_to_do(self):
        done = run_python("import attnforge; attnforge.version()", ATTNFORGE_LIBRARY="/nowhere/libattnforge.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ATTNFORGE_LIBRARY", done.stderr)
        self.assertIn("/nowhere/libattnforge.so", done.stderr)

    def test_without_a_gpu_plans_name_the_driver(self):
        done = run_python(
            "import attnforge\n"
            "try:\n  attnforge.supported('fwd bf16 seqlen=64 head_dim=64')\n"
            "except attnforge.NoDriverError as error:\n  print('no driver:', error)\n"
            "else:\n  print('driver')\n"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^(no driver: .+|driver$)")


if __name__ == "__main__":
    unittest.main()
