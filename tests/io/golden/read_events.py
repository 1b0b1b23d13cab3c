"""Reads, with TensorBoard itself, the run that event_writer_test.cc writes (made with tensorboard 2.21).

    python3 read_events.py FOLDER     # 0: all is there; 77: tensorboard is not installed
"""
import io
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import metadata
    from tensorboard.util import tensor_util
except ImportError:
    sys.exit(77)


def close(a, b):
    return abs(a - b) <= 1e-6 * max(1, abs(b))


run = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "images": 0, "histograms": 0})
run.Reload()
tags = run.Tags()

# The second writer purged what the first one said about step 5 and later.
loss = [(e.step, e.value) for e in run.Scalars("train/loss")]
assert [s for s, _ in loss] == list(range(10)), loss
assert all(close(v, s / 4 + (100 if s >= 5 else 0)) for s, v in loss), loss

(histogram,) = run.Histograms("weights")
h = histogram.histogram_value
assert histogram.step == 3 and h.num == 1000 and h.min == -500 and h.max == 499, h
assert sum(h.bucket) == 1000 and len(h.bucket) == len(h.bucket_limit), h
assert close(h.sum, -500) and h.sum_squares > 0, h
assert len(run.Histograms("nothing")) == 1

(image,) = run.Images("samples")
assert (image.step, image.height, image.width) == (2, 14, 26), image[:4]
assert image.encoded_image_string[:8] == b"\x89PNG\r\n\x1a\n"
try:
    from PIL import Image

    pixels = Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB")
    assert pixels.size == (26, 14) and pixels.getpixel((2, 2)) == (1, 17, 33), pixels.getpixel((2, 2))
except ImportError:
    pass

(text,) = run.Tensors("notes")
assert tensor_util.make_ndarray(text.tensor_proto).tolist() == [b"# A run"], text
assert run.SummaryMetadata("notes").plugin_data.plugin_name == "text"

content = run.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
experiment = metadata.parse_experiment_plugin_data(content)
assert [i.name for i in experiment.hparam_infos] == ["lr", "model", "amp"], experiment
assert [i.name.tag for i in experiment.metric_infos] == ["train/loss"], experiment
content = run.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
start = metadata.parse_session_start_info_plugin_data(content)
assert start.hparams["lr"].number_value == 0.1 and start.hparams["model"].string_value == "resnet18", start
assert start.hparams["amp"].bool_value is True, start
print("TensorBoard reads it:", {k: v for k, v in tags.items() if v})
