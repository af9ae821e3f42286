"""
Dead letters: what is kept of records that were given up, and where.

Each sink is imported by name, so that a host which writes to a file loads no client of AWS:
`processor_host.letters.file`, `.sqlite`, `.sqs`, `.dynamodb`; or by its URL with `open_sink` of
`processor_host.letters.urls`.
"""

from processor_host.letters.base import Found, Letter, LetterBox, LetterSink, LettersUnavailable, letter_of, record_of

__all__ = ["Found", "Letter", "LetterBox", "LetterSink", "LettersUnavailable", "letter_of", "record_of"]
