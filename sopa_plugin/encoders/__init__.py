"""Encoders of documents; importing the room registers them. Needs torch alone."""

from sopa_plugin.encoders.bilstm import BilstmEncoder
from sopa_plugin.encoders.cnn import CnnEncoder
from sopa_plugin.encoders.dan import DanEncoder, MeanEncoder
from sopa_plugin.encoders.seq2vec_encoder import (
    Packed,
    PackedSeq2VecEncoder,
    Seq2VecEncoder,
    encode_packed,
    offsets_of,
    pack,
    pad,
)
from sopa_plugin.encoders.sopa import SopaEncoder
from sopa_plugin.encoders.sopa_stream import SopaState, SopaStream

__all__ = [
    "BilstmEncoder",
    "CnnEncoder",
    "DanEncoder",
    "MeanEncoder",
    "Packed",
    "PackedSeq2VecEncoder",
    "Seq2VecEncoder",
    "SopaEncoder",
    "SopaState",
    "SopaStream",
    "encode_packed",
    "offsets_of",
    "pack",
    "pad",
]
