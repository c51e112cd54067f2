#!/usr/bin/env bash
# Build the FFmpeg that wheels carry into the prefix given: shared libraries under the LGPL, which demux and decode only,
# with dav1d inside for AV1. Called by cibuildwheel in a manylinux image; elsewhere nasm, zlib's headers and Python do.
set -euo pipefail

prefix=${1:?the prefix to install into}
jobs=${JOBS:-$(nproc)}
python=${PYTHON:-python3.12}

ffmpeg="ffmpeg-7.1.5"
ffmpeg_url=https://ffmpeg.org/releases/$ffmpeg.tar.xz
ffmpeg_sha256=de668509caf9e35e3cd162473441fdb29538c6d96ed080292b3cf9e6fc5d558f
dav1d="dav1d-1.5.1"
dav1d_url=https://downloads.videolan.org/pub/videolan/dav1d/1.5.1/$dav1d.tar.xz
dav1d_sha256=401813f1f89fa8fd4295805aa5284d9aed9bc7fc1fdbe554af4292f64cbabe21

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# unpack NAME URL SHA256
unpack() {
  curl --fail --location --silent --show-error --retry 3 --output "$1.tar.xz" "$2"
  echo "$3  $1.tar.xz" | sha256sum --check --quiet
  tar -xf "$1.tar.xz"
}

if ! command -v nasm >/dev/null; then
  dnf install -y -q --enablerepo=powertools nasm zlib-devel
fi
"$python" -m venv tools
tools/bin/pip install --quiet meson==1.9.1 ninja==1.13.0
PATH=$work/tools/bin:$PATH

unpack $dav1d $dav1d_url $dav1d_sha256
meson setup $dav1d/build $dav1d --prefix "$work/static" --libdir lib --buildtype release --default-library static \
  -Denable_tools=false -Denable_tests=false
ninja -C $dav1d/build -j "$jobs" install

unpack $ffmpeg $ffmpeg_url $ffmpeg_sha256
(
  cd $ffmpeg
  PKG_CONFIG_PATH=$work/static/lib/pkgconfig ./configure --prefix="$prefix" --libdir="$prefix/lib" \
    --enable-shared --disable-static --disable-debug --disable-doc --disable-programs --disable-autodetect \
    --disable-avdevice --disable-avfilter --disable-network --disable-encoders --disable-muxers --disable-devices \
    --enable-zlib --enable-libdav1d --pkg-config-flags=--static
  make -j "$jobs" install
)

# flashcodec/CMakeLists.txt puts these into the wheel.
licenses=$prefix/share/licenses-of-wheels
mkdir -p "$licenses"
cp $ffmpeg/COPYING.LGPLv2.1 "$licenses/FFmpeg.LGPLv2.1"
cp $dav1d/COPYING "$licenses/dav1d.BSD-2-Clause"
