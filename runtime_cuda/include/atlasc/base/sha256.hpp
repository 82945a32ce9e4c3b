// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace atlasc {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
public:
    /// `portable`: do not use the processor's own instructions, which are ten times as fast.
    explicit Sha256(bool portable = false);

    /// Add bytes of the message.
    void add(const void* data, std::size_t size);

    /// The digest of all added bytes; no bytes may be added afterwards.
    Digest digest();

private:
    using State = std::array<std::uint32_t, 8>;
    using Blocks = void (*)(State& state, const std::uint8_t* data, std::size_t count);

    Blocks blocks_;
    State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> rest_{};
    std::uint64_t size_ = 0;
};

Digest sha256(const void* data, std::size_t size);

/// The digest as 64 hexadecimal digits.
std::string text_of(const Digest& digest);

}  // namespace atlasc
