// Encoded plaintexts that a program uses more than once: diagonals of the bootstrap, masks.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "ckks/encoder.hpp"

namespace atlasc::ckks {

/// Kept from the second use on, so that the weights of linear layers, used once, take no room. When
/// the room is full, what was used longest ago goes.
class PlaintextCache {
public:
    /// `room`: device memory in bytes.
    PlaintextCache(Encoder& encoder, std::uint64_t room) : encoder_(encoder), room_(room) {}

    /// Values of the polynomial of a vector, real or complex. Throws Error, as `encode` does.
    template <typename Slots>
    std::shared_ptr<const Plain> encoded(const Slots& slots, double scale, std::size_t limbs,
                                         bool extended = false) {
        const Key key =
            key_of(slots.data(), slots.size(), sizeof(slots[0]), scale, limbs, extended);
        if (std::shared_ptr<const Plain> found = find(key)) {
            return found;
        }
        auto plain =
            std::make_shared<const Plain>(encoder_.plain(slots, scale, limbs, extended));
        if (!seen_.insert(key).second) {
            store(key, plain);
        }
        return plain;
    }

    void clear();

private:
    /// 128 bits of the numbers, how many there are, the bytes of one, scale, primes, `extended`.
    using Key = std::tuple<std::array<std::uint64_t, 2>, std::size_t, std::size_t, double,
                           std::size_t, bool>;
    struct Entry {
        std::shared_ptr<const Plain> plain;
        std::list<Key>::iterator use;
    };

    static Key key_of(const void* data, std::size_t count, std::size_t size, double scale,
                      std::size_t limbs, bool extended);
    std::shared_ptr<const Plain> find(const Key& key);
    void store(const Key& key, const std::shared_ptr<const Plain>& plain);

    Encoder& encoder_;
    std::uint64_t room_;
    std::uint64_t used_ = 0;
    std::set<Key> seen_;
    std::map<Key, Entry> entries_;
    std::list<Key> uses_;  ///< the latest first
};

}  // namespace atlasc::ckks
