"""What people drop in place of a SEG-Y file, told by its first bytes."""

from __future__ import annotations

import struct

_BEGINNINGS = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"II*\x00": "a TIFF picture",
    b"MM\x00*": "a TIFF picture",
    b"\x89HDF": "an HDF5 file",
    b"CDF\x01": "a netCDF file",
    b"CDF\x02": "a netCDF file",
    b"\x55\x3a": "a SEG-2 file",
    b"\x3a\x55": "a SEG-2 file",
    struct.pack("<III", 0, 0, 3212): "a tape image (TIF)",
    struct.pack("<I", 3200): "Fortran records",
    struct.pack(">I", 3200): "Fortran records",
}


def foreign(head: bytes) -> str | None:
    """What a file that begins with ``head`` is, when that is known and no SEG-Y."""
    if head[257:262] == b"ustar":
        return "a tar archive"
    if len(head) >= 3600 and not any(head):
        return f"{len(head)} zero bytes where the file headers should be"
    return next((name for magic, name in _BEGINNINGS.items() if head.startswith(magic)), None)
