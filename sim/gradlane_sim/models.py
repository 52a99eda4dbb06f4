# SPDX-License-Identifier: Apache-2.0
"""What training of well-known models exchanges: the sizes of their layers follow from their architectures, the times of
computation from their arithmetic and a stated speed.

ResNet-50: He et al., CVPR 2016, table 1. VGG-16: Simonyan and Zisserman, ICLR 2015, configuration D. BERT-large: Devlin
et al., NAACL 2019. GPT-2 XL: Radford et al. 2019, with 1,558 million parameters. The numbers of parameters are those of
torchvision and Hugging Face's transformers; a test compares them."""

from dataclasses import dataclass

from gradlane_sim.specification import SECOND, Tensor, need

_FLOAT = 4
# As DistributedDataParallel's first bucket is; a tensor of one message has at most 8,192 slices.
DEFAULT_BUCKET = 4 << 20


@dataclass(frozen=True)
class Layer:
    """`flops`: of a forward pass of one sample."""

    parameters: int
    flops: float


@dataclass(frozen=True)
class Model:
    """`batch`: samples of a worker in a step. `speed`: FLOP/s that a worker's accelerator sustains. Assumed: an A100,
    whose peak is 312 TFLOP/s in bfloat16, reaches a fifth of it with convolutions and two fifths with transformers."""

    name: str
    layers: tuple[Layer, ...]
    batch: int
    speed: float

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)


_PEAK = 312e12
_CONVOLUTIONS, _TRANSFORMERS = 0.2 * _PEAK, 0.4 * _PEAK


def _convolution(size: int, inputs: int, outputs: int, pixels: int, extra: int) -> Layer:
    """`extra`: parameters by output, beside the kernel: a bias, or two of batch normalisation."""
    kernel = size * size * inputs * outputs
    return Layer(kernel + extra * outputs, 2 * kernel * pixels * pixels)


def _dense(inputs: int, outputs: int) -> Layer:
    return Layer(inputs * outputs + outputs, 2 * inputs * outputs)


def _resnet50() -> tuple[Layer, ...]:
    layers = [_convolution(7, 3, 64, 112, 2)]
    inputs = 64
    for width, blocks, pixels in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            before = pixels * 2 if block == 0 and width > 64 else pixels  # the second convolution has the stride
            layers.append(_convolution(1, inputs, width, before, 2))
            layers.append(_convolution(3, width, width, pixels, 2))
            layers.append(_convolution(1, width, 4 * width, pixels, 2))
            if block == 0:
                layers.append(_convolution(1, inputs, 4 * width, pixels, 2))
            inputs = 4 * width
    return (*layers, _dense(2048, 1000))


def _vgg16() -> tuple[Layer, ...]:
    layers: list[Layer] = []
    inputs = 3
    for width, count, pixels in ((64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14)):
        for _ in range(count):
            layers.append(_convolution(3, inputs, width, pixels, 1))
            inputs = width
    return (*layers, _dense(512 * 7 * 7, 4096), _dense(4096, 4096), _dense(4096, 1000))


def _block(width: int, tokens: int) -> Layer:
    """Of a transformer: attention, a layer of four times the width, two normalisations."""
    matrices = 12 * width * width
    vectors = 4 * width + 4 * width + width + 4 * width
    return Layer(matrices + vectors, 2 * tokens * matrices + 4 * tokens * tokens * width)


def _bert_large() -> tuple[Layer, ...]:
    width, tokens = 1024, 512
    embeddings = Layer((30522 + 512 + 2) * width + 2 * width, 0)
    pooler = _dense(width, width)
    return (embeddings, *[_block(width, tokens)] * 24, pooler)


def _gpt2_xl() -> tuple[Layer, ...]:
    width, tokens, words = 1600, 1024, 50257
    embeddings = Layer((words + 1024) * width, 0)
    # The embeddings are the output's weights, too.
    return (embeddings, *[_block(width, tokens)] * 48, Layer(2 * width, 2 * tokens * words * width))


MODELS = {
    it.name: it
    for it in (
        Model("resnet50", _resnet50(), 64, _CONVOLUTIONS),
        Model("vgg16", _vgg16(), 32, _CONVOLUTIONS),
        Model("bert-large", _bert_large(), 8, _TRANSFORMERS),
        Model("gpt2-xl", _gpt2_xl(), 1, _TRANSFORMERS),
    )
}


@dataclass(frozen=True)
class Trace:
    """Of a step: its tensors in the order of the backward pass, and how long it computes (ns)."""

    tensors: tuple[Tensor, ...]
    compute: int


def trace(model: Model, bucket: int = DEFAULT_BUCKET, scale: float = 1.0) -> Trace:
    """Layers' gradients are ready as the backward pass, which takes twice the forward one's time, gets to them; those
    of neighbours are reduced together, up to `bucket` bytes. `scale`: of sizes and times alike, so that what computing
    hides stays the same part; below 1 a simulation takes less time."""
    need(bucket >= _FLOAT, f"a bucket has {bucket} bytes; it must hold an element: {_FLOAT} or more")
    need(0 < scale <= 1, f"the scale is {scale}; it must be above 0, and at most 1")
    forward = [layer.flops * model.batch / model.speed * SECOND * scale for layer in model.layers]
    at = sum(forward)
    tensors: list[Tensor] = []
    waiting = 0
    for index in reversed(range(len(model.layers))):
        at += 2 * forward[index]
        waiting += max(_FLOAT, round(model.layers[index].parameters * scale) * _FLOAT)
        while waiting >= bucket or (index == 0 and waiting):
            size = min(waiting, bucket // _FLOAT * _FLOAT)
            tensors.append(Tensor(round(at), size, index))
            waiting -= size
    return Trace(tuple(tensors), round(at))
