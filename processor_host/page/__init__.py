"""
The status page: a group as one of its hosts sees it, for people with a browser.

Reads no store. What it shows is what the balancer has read anyway, what this host's own events say, and nothing else,
so that a page nobody looks at and one with ten viewers cost the store the same: nothing.
"""

from __future__ import annotations

from processor_host.page.answers import StatusPage, page_url
from processor_host.page.picture import STATUS_URL
from processor_host.page.watch import GroupWatch

__all__ = ["STATUS_URL", "GroupWatch", "StatusPage", "page_url"]
