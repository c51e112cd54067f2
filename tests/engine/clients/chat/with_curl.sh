# curl: uploads, compressed bodies, streams, HEAD, base64 with line breaks, whole URLs, early refusals.
set -euo pipefail
url=$1 model=$2 samples=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

ask() { curl --silent --show-error --fail-with-body -H 'Content-Type: application/json' "$@"; }
has() { grep --fixed-strings -- "$1" >/dev/null || { echo "no '$1' in the answer" >&2; exit 1; }; }
question() { # QUESTION PART
  printf '{"model": "%s", "temperature": 0, "messages": [{"role": "user", "content": [%s, {"type": "text", "text": "%s"}]}]}' \
    "$model" "$2" "$1"
}

curl --silent --fail --head "$url/models" | has '200'
ask "$url/models/$model" | has "$model"

# Images: base64 in lines; videos: uploaded, named by id
base64 "$samples/shapes.jpg" | awk '{printf "%s\\n", $0}' >"$folder/lines"
question 'Tell me the color of the triangle.' \
  '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,'"$(<"$folder/lines")"'"}}' >"$folder/picture.json"
ask "$url/chat/completions" -d @"$folder/picture.json" | has red
gzip --keep "$folder/picture.json"
ask "$url/chat/completions" -H 'Content-Encoding: gzip' --data-binary @"$folder/picture.json.gz" | has red
id=$(curl --silent --fail-with-body "$url/files" -F purpose=vision -F file=@"$samples/shapes-motion.mp4" | grep -o 'file-[A-Za-z0-9]*')
question 'Tell me the color of the star.' '{"type": "video_url", "video_url": {"url": "'"$id"'"}}' >"$folder/video.json"
ask "$url/chat/completions" -d @"$folder/video.json" | has white

# Streams
ask --no-buffer "$url/chat/completions" \
  -d '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": true}' >"$folder/stream"
tail -n 2 "$folder/stream" | has 'data: [DONE]'
ask --no-buffer "$url/responses" -d '{"input": "Hi", "max_output_tokens": 4, "stream": true}' | has 'event: response.created'

# A body that is too large is told so while it is being sent
head -c 20000000 /dev/zero | tr '\0' x >"$folder/large"
curl --silent "$url/completions" -H 'Content-Type: application/json' -H 'Expect:' --data-binary @"$folder/large" \
  --write-out '%{http_code}' | has 413
