#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ipc::net {

using Digest = std::array<std::byte, 32>;

// FIPS 180-4.
Digest sha256(std::span<const std::byte> bytes);

// RFC 2104, over SHA-256.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// Takes as long wherever they differ.
bool equal_in_constant_time(const Digest& one, const Digest& other);

}  // namespace ipc::net
