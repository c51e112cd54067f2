namespace unified {
namespace {

// Calls f(index, count) for vectors and a shorter rest.
template <class Function>
void for_vectors(std::int64_t n, Function f) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) f(i, kWidth);
  if (i < n) f(i, n - i);
}

// A load or store of `count` elements, which is a whole vector nearly always.
template <class T>
Float take(const T* from, std::int64_t count) {
  return count == kWidth ? load(from) : load(from, count);
}

template <class T>
void put(T* to, Float value, std::int64_t count) {
  if (count == kWidth) {
    store(to, value);
  } else {
    store(to, value, count);
  }
}

template <class In, class T, class Out>
void norm(const In* x, std::int64_t n, const T* weight, float epsilon, Out* out) {
  Float squares = {};
  for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    const Float value = take(x + i, count);
    squares += value * value;
  });
  const float scale = 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(n) + epsilon);
  for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    put(out + i, take(x + i, count) * scale * take(weight + i, count), count);
  });
}

template <class T>
void norm_in_place(float* x, std::int64_t n, const T* weight, float epsilon) {
  norm<float, T, float>(x, n, weight, epsilon, x);
}

template <class T>
void rotate(const float* x, const float* cosine, const float* sine, std::int64_t n, T* out) {
  const std::int64_t half = n / 2;
  for_vectors(half, [&](std::int64_t i, std::int64_t count) {
    const Float first = take(x + i, count);
    const Float second = take(x + half + i, count);
    put(out + i, first * take(cosine + i, count) - second * take(sine + i, count), count);
    put(out + half + i, second * take(cosine + half + i, count) + first * take(sine + half + i, count), count);
  });
}

inline Float silu(Float x) { return x / (1.0F + exponential(-x)); }

template <class T>
void gate(const float* gate, const float* up, std::int64_t n, T* out) {
  for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    put(out + i, silu(take(gate + i, count)) * take(up + i, count), count);
  });
}

template <class T>
void finish(const float* x, const T* other, Step step, std::int64_t n, T* out) {
  const auto each = [&](auto apply) {
    for_vectors(n,
                [&](std::int64_t i, std::int64_t count) { put(out + i, apply(take(x + i, count), i, count), count); });
  };
  switch (step) {
    case Step::kNone:
      return each([](Float sum, std::int64_t /*i*/, std::int64_t /*count*/) { return sum; });
    case Step::kSilu:
      return each([](Float sum, std::int64_t /*i*/, std::int64_t /*count*/) { return silu(sum); });
    case Step::kPlus:
      return each([&](Float sum, std::int64_t i, std::int64_t count) { return sum + take(other + i, count); });
    case Step::kTimes:
      return each([&](Float sum, std::int64_t i, std::int64_t count) { return sum * take(other + i, count); });
  }
}

template <class T>
void widen(const T* x, std::int64_t n, float* out) {
  for_vectors(n, [&](std::int64_t i, std::int64_t count) { put(out + i, take(x + i, count), count); });
}

template <class T>
void narrow(const float* x, float scale, std::int64_t n, T* out) {
  for_vectors(n, [&](std::int64_t i, std::int64_t count) { put(out + i, take(x + i, count) * scale, count); });
}

// What codes of 8 bits are to be multiplied with, and their sum.
struct Rounded {
  float scale;
  std::int32_t sum;
};

template <class T>
Rounded round_to_codes(const T* x, std::int64_t n, std::int8_t* codes) {
  constexpr float kRound = 12582912.0F;              // 1.5 * 2^23: adding it leaves an integer in the low bits
  constexpr float kLeast = 1e-30F;                   // smaller ones have no inverse
  Float highest[] = {splat(kLeast), splat(kLeast)};  // two, so that none waits for the last comparison
  const auto compare = [&](int which, Float value) {
    highest[which] = greater(greater(value, -value), highest[which]);
  };
  const std::int64_t pairs = n / (2 * kWidth) * (2 * kWidth);
  for (std::int64_t i = 0; i < pairs; i += 2 * kWidth) {
    compare(0, load(x + i));
    compare(1, load(x + i + kWidth));
  }
  for_vectors(n - pairs, [&](std::int64_t i, std::int64_t count) { compare(0, take(x + pairs + i, count)); });
  const float most = maximum(greater(highest[0], highest[1]));
  const float factor = 127.0F / most;
  Int total = {};
  for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    const Int code =
        __builtin_bit_cast(Int, take(x + i, count) * factor + kRound) - __builtin_bit_cast(Int, splat(kRound));
    total += code;
    if (count == kWidth) return store_codes(codes + i, code);
    std::int8_t rounded[kWidth];
    store_codes(rounded, code);
    std::memcpy(codes + i, rounded, static_cast<std::size_t>(count));
  });
  return {most / 127.0F, sum(total)};
}

template <class T>
float quantize(const T* x, std::int64_t n, std::int8_t* codes) {
  return round_to_codes(x, n, codes).scale;
}

inline std::int64_t likeliest(const float* x, std::int64_t n) {
  constexpr int kVectors = 2;  // so that none waits for the last comparison
  constexpr std::int64_t kStep = kVectors * kWidth;
  Float highest[] = {splat(-__builtin_inff()), splat(-__builtin_inff())};  // of each lane
  Int steps[kVectors] = {};                                                // where they were found
  const std::int64_t whole = n / kStep * kStep;
  for (std::int64_t i = 0; i < whole; i += kStep) {
    const Int step = Int{} + static_cast<std::int32_t>(i);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Float value = load(x + i + v * kWidth);
      const Int higher = value > highest[v];
      highest[v] = higher ? value : highest[v];
      steps[v] = higher ? step : steps[v];
    }
  }
  float best = -__builtin_inff();
  std::int64_t place = 0;
  const auto compare = [&](float value, std::int64_t at) {
    if (value < best || (value == best && at >= place) || value != value) return;
    best = value;
    place = at;
  };
  for (int v = 0; v < kVectors; ++v)
    for (int lane = 0; lane < kWidth; ++lane) compare(highest[v][lane], steps[v][lane] + v * kWidth + lane);
  for (std::int64_t i = whole; i < n; ++i) compare(x[i], i);
  return place;
}

}  // namespace
}  // namespace unified
