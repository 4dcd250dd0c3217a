"""Small valid models that mutations start from: every part of the importer, and what shapes and sizes depend on."""

from __future__ import annotations

import onnx
import onnx.parser

_TEXTS = (
    "(float[N,3,8,8] x, float[4,3,3,3] w) => (float[] y) { h = Conv<pads = [1, 1, 1, 1]>(x, w) y = Relu(h) }",
    """(float[1,2,4] x, float[2,2,3] w) => (float[] y) {
        y = ConvTranspose<strides = [2], output_padding = [1]>(x, w) }""",
    "(float[1,1,5,5] x) => (float[] y) { h = MaxPool<kernel_shape = [2, 2]>(x) y = LpPool<kernel_shape = [2, 3]>(h) }",
    "(float[2,N,3] x) => (float[] y) { s = Shape(x) h = Reshape(x, s) y = Softmax<axis = 1>(h) }",
    "(float[4,5] x) => (float[] y) <int64[2] a = {0, 1}, int64[2] b = {2, 9}> { y = Slice(x, a, b) }",
    '(float[4,5] x) => (float[] y) <int64[4] p = {1, 0, 0, 1}> { y = Pad<mode = "reflect">(x, p) }',
    """(float[2] x) => (float[] y) <int64[1] n = {3}> {
        c = ConstantOfShape(n) t = Tile(x, n) y = Concat<axis = 0>(c, t) }""",
    "(float[1,3] x, int64[2] s) => (float[] y) { h = Expand(x, s) y = ReduceSum<keepdims = 0>(h) }",
    "(int64 n) => (int64[] y) <int64 a = {0}, int64 d = {2}> { y = Range(a, n, d) }",
    '(float[1,1,2,2] x) => (float[] y) <float[4] s = {1, 1, 2, 1.5}> { y = Resize<mode = "linear">(x, , s) }',
    "(float[2,3] x, int64[2] i) => (float[] y) { h = Gather<axis = 1>(x, i) y = Transpose<perm = [1, 0]>(h) }",
    "(float[3,4] x, int64[3,1] i) => (float[] y) { y = GatherElements<axis = 1>(x, i) }",
    "(float[3] x, int64[1,1] i, float[1] u) => (float[] y) { y = ScatterND(x, i, u) }",
    "(float[6] x) => (float[] a, float[] b) <int64[2] s = {2, 4}> { a, b = Split<axis = 0>(x, s) }",
    "(float[2,4] x) => (float[] v, int64[] i) <int64[1] k = {2}> { v, i = TopK(x, k) }",
    "(int64[3] i) => (float[] y) <int64 d = {4}, float[2] v = {0, 1}> { y = OneHot(i, d, v) }",
    "(float[2,3] a, float[3,2] b) => (float[] y) { h = MatMul(a, b) y = Gemm<alpha = 0.5, transB = 1>(h, h) }",
    '(float[2,3] a, float[3,2] b) => (float[] y) { y = Einsum<equation = "ij,jk->ki">(a, b) }',
    "(float[2,4] x, float[4] s, float[4] b) => (float[] y) { h = LayerNormalization(x, s, b) y = Gelu(h) }",
    "(float[2,2,3] x, float[2] s) => (float[] y) { y = BatchNormalization(x, s, s, s, s) }",
    "(float[2,1,3] x, float[1,8,3] w, float[1,8,2] r) => (float[] y) { y = LSTM<hidden_size = 2>(x, w, r) }",
    "(float[2,3] x) => (int64[] y) { h = Greater(x, x) n = Not(h) y = NonZero(n) }",
    "(float[3,2] x) => (float[] y) <int64[1] a = {0}> { h = Squeeze(x) u = Unsqueeze(h, a) y = Flatten<axis = 2>(u) }",
    "(float[4] x) => (int8[] y) { h = Cast<to = 6>(x) b = Cast<to = 9>(h) y = Cast<to = 3>(b) }",
    "(float[1,4,2,2] x) => (float[] y) { h = DepthToSpace<blocksize = 2>(x) y = LRN<size = 3>(h) }",
    "(float[3] x) => (float[] y) <int64 a = {0}> { h = CumSum(x, a) c = Clip(h) y = Concat<axis = 0>(c, x) }",
    "(int64[2] a, int64[2] b) => (int64[] y) { h = Mod(a, b) d = Div(h, b) y = Pow(d, b) }",
    """(float[2] x, bool p) => (float[] y) { h = Exp(x) y = If(p) <
        then_branch = t () => (float[2] m) { m = Mul(x, h) },
        else_branch = e () => (float[2] s) { s = Add(x, h) }> }""",
    """(float[2] x, int64 n) => (float[2] y, float[] z) { y, z = Loop(n, , x) <
        body = b (int64 i, bool c, float[2] v) => (bool go, float[2] w, float[2] s) {
            go = Identity(c) w = Add(v, x) s = Neg(w) }> }""",
    """(float[2] x, float[3,2] e) => (float[2] y, float[] z) { y, z = Scan(x, e) <num_scan_inputs = 1,
        body = b (float[2] a, float[2] d) => (float[2] o, float[2] p) { o = Add(a, d) p = Mul(a, d) }> }""",
)

_FUNCTION = """
    <ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[N] x) => (float[N] y) { h = local.F<alpha = 2.0>(x) y = local.F(h) }
    <domain: "local", opset_import: ["": 21]>
    F <alpha: float = 1.0> (a) => (b) { b = Elu<alpha: float = @alpha>(a) }"""


def small_models() -> list[onnx.ModelProto]:
    """One model for each text, the same in the same order each time."""
    models = [onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}') for text in _TEXTS]
    return [*models, onnx.parser.parse_model(_FUNCTION)]
