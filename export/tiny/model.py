"""Qwen2-VL in plain torch, batched over padded pictures, for training only.

Module names follow the published checkpoint (``visual.*``, ``model.*``), so the state dict needs one change to be
one: the
patch embedding is a matrix over one still frame here and a two-frame convolution there (see ``checkpoint.py``).
Rotary order,
merge order and M-RoPE follow ``transformers`` modeling_qwen2_vl; ``evaluate.py`` checks the saved checkpoint
against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Config:
    vision_width: int = 160
    vision_depth: int = 5
    vision_heads: int = 4
    width: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    mlp_width: int = 384
    vocab: int = 296
    rope_theta: float = 20.0  # a dozen cells must differ on every axis
    mrope_sections: tuple[int, int, int] = (4, 6, 6)

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate-half with half-width tables; x [B, heads, S, D], cos and sin [B, 1, S, D/2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention spelled out: on small heads the fused kernel's backward pass is several times slower than these
    products."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (scores if bias is None else scores + bias).softmax(-1).to(v.dtype) @ v


class VisionBlock(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        d = c.vision_width
        self.heads = c.vision_heads
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(d, 3 * d), "proj": nn.Linear(d, d)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(d, 4 * d), "fc2": nn.Linear(4 * d, d)})

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.attn["qkv"](self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        y = attend(q, k, v, bias)
        x = x + self.attn["proj"](y.transpose(1, 2).reshape(b, n, d))
        h = self.mlp["fc1"](self.norm2(x))
        return x + self.mlp["fc2"](h * torch.sigmoid(1.702 * h))


class Vision(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        d = c.vision_width
        self.c = c
        self.patch_embed = nn.ModuleDict({"proj": nn.Linear(588, d, bias=False)})
        self.blocks = nn.ModuleList(VisionBlock(c) for _ in range(c.vision_depth))
        self.merger = nn.ModuleDict(
            {
                "ln_q": nn.LayerNorm(d, eps=1e-6),
                "mlp": nn.Sequential(nn.Linear(4 * d, 4 * d), nn.GELU(), nn.Linear(4 * d, c.width)),
            }
        )

    def forward(self, patches: Tensor, grid: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """patches [B, N, 588] in merge order, grid i64 [B, N, 2] (row, column), counts i64 [B] -> rows [B, N,
        width], embeds [B, N/4, width]."""
        dim = self.c.vision_width // self.c.vision_heads // 2
        inv = 1.0 / (10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
        angle = (grid[..., None].float() * inv).flatten(2)[:, None]
        cos, sin = angle.cos(), angle.sin()
        padded = torch.arange(patches.shape[1]) >= counts[:, None]
        bias = torch.where(padded, -30000.0, 0.0).to(torch.bfloat16)[:, None, None] if bool(padded.any()) else None
        x = self.patch_embed["proj"](patches)
        for block in self.blocks:
            x = block(x, cos, sin, bias)
        rows = self.merger["ln_q"](x)
        return rows, self.merger["mlp"](rows.reshape(rows.shape[0], -1, 4 * self.c.vision_width))


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, 1e-6)


class TextLayer(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        w, kv = c.width, c.kv_heads * c.head_dim
        self.c = c
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(w), RMSNorm(w)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(w, w),
                "k_proj": nn.Linear(w, kv),
                "v_proj": nn.Linear(w, kv),
                "o_proj": nn.Linear(w, w, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(w, c.mlp_width, bias=False),
                "up_proj": nn.Linear(w, c.mlp_width, bias=False),
                "down_proj": nn.Linear(c.mlp_width, w, bias=False),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the layer's output and its rotated queries and keys [B, heads, S, D] for the attention helper."""
        b, s, w = x.shape
        h, a, c = self.input_layernorm(x), self.self_attn, self.c
        q = a["q_proj"](h).view(b, s, c.heads, -1).transpose(1, 2)
        k = a["k_proj"](h).view(b, s, c.kv_heads, -1).transpose(1, 2)
        v = a["v_proj"](h).view(b, s, c.kv_heads, -1).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = c.heads // c.kv_heads
        wide_k, wide_v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = attend(q, wide_k, wide_v, bias)
        x = x + a["o_proj"](y.transpose(1, 2).reshape(b, s, w))
        h = self.post_attention_layernorm(x)
        m = self.mlp
        return x + m["down_proj"](F.silu(m["gate_proj"](h)) * m["up_proj"](h)), q, wide_k


class TinyQwen2VL(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.visual = Vision(c)
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(c.vocab, c.width),
                "layers": nn.ModuleList(TextLayer(c) for _ in range(c.layers)),
                "norm": RMSNorm(c.width),
            }
        )
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 if "embed_tokens" in name else p.shape[1] ** -0.5 * 0.7)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def mrope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions i64 [B, 3, S] -> cos, sin [B, 1, S, head_dim/2]; the axis of a frequency comes from the
        sections."""
        half = self.c.head_dim // 2
        inv = 1.0 / (self.c.rope_theta ** (torch.arange(half, dtype=torch.float32) * 2 / self.c.head_dim))
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(self.c.mrope_sections))
        angle = positions.float()[:, axis].transpose(1, 2) * inv
        return angle.cos()[:, None], angle.sin()[:, None]

    def forward(self, embeds: Tensor, positions: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]], list[Tensor]]:
        """embeds [B, S, width], positions i64 [B, 3, S] -> output, and each layer's queries and keys, and output."""
        cos, sin = self.mrope(positions)
        at = torch.arange(embeds.shape[1])
        bias = torch.where(at[None] > at[:, None], -30000.0, 0.0).to(torch.bfloat16)
        x, pairs, states = embeds, [], []
        for layer in self.model["layers"]:
            x, q, k = layer(x, cos, sin, bias)
            pairs.append((q, k))
            states.append(x)
        return self.model["norm"](x), pairs, states
