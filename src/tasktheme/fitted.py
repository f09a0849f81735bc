"""A fitted model: what :class:`tasktheme.PTM` keeps in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tasktheme.model.themes import Themes
from tasktheme.nets.build import Networks
from tasktheme.settings import Settings
from tasktheme.storage import check_tensors, fingerprint


@dataclass(frozen=True)
class Fitted:
    """Networks and themes after training, or from a file."""

    networks: Networks
    themes: Themes

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], settings: Settings, point_shape: tuple[int, ...], device: torch.device
    ) -> Fitted:
        """What :meth:`tensors` gave; RuntimeError where they are not those of such a model, or not sound."""
        check_tensors(tensors, expected_tensors(settings, point_shape))
        networks = Networks(settings, point_shape, device)
        networks.load(tensors)
        themes = Themes.from_tensors(tensors, floor=settings.covariance_floor, device=device, aspects=settings.aspects)
        if not bool(themes.valid):
            raise RuntimeError("its themes are not finite, or their covariances not positive definite")
        return cls(networks, themes)

    def tensors(self) -> dict[str, Tensor]:
        """All that a file of the model holds, by name."""
        return {**self.networks.state_dict(), **self.themes.tensors()}

    @cached_property
    def fingerprint(self) -> str:
        """Names the model by its weights."""
        return fingerprint(self.tensors())

    def decode_themes(self) -> Tensor | None:
        """(K, *point shape) the decoded mean of each theme; None without a decoder."""
        if self.networks.decoder is None:
            return None
        mu = self.themes.centres.unsqueeze(1)  # each theme as a task of one point: norms see it alone
        with torch.no_grad():
            return self.networks.decoder.mean(mu, torch.ones_like(mu[..., 0], dtype=torch.bool))[:, 0]

    @cached_property
    def brightness(self) -> float | None:
        """Mean value of what the themes decode to, by their shares; None without a decoder."""
        decoded, share = self.decode_themes(), self.themes.share
        return None if decoded is None else float(decoded.flatten(1).mean(dim=1) @ share / share.sum())


def expected_tensors(settings: Settings, point_shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Tensors without content of the shapes that a saved model has: nothing is allocated, whatever its settings claim."""
    with torch.device("meta"):
        networks = Networks(settings, point_shape, torch.device("meta"))
        dimensions = settings.latent_dim if networks.decoder is not None else point_shape[0]  # no decoder: the data's own
        if dimensions % settings.aspects:
            raise RuntimeError(f"{dimensions} dimensions are not those of {settings.aspects} aspects")
        mu = torch.empty(settings.aspects * settings.themes, dimensions // settings.aspects)
        Sigma = torch.empty(*mu.shape, mu.shape[1]) if settings.covariance == "full" else mu
        return {
            **networks.state_dict(),
            **{f"themes.{name}": mu[:, 0] for name in ("alpha", "n")},
            "themes.mu": mu,
            "themes.Sigma": Sigma,
        }
