#include "ckks/plaintexts/copies.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "atlasc/base/threads.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t grain = 16384;  ///< numbers that a thread copies

/// The larger one; no number where one is none.
double larger(double one, double other) {
    return std::isnan(one) || one > other ? one : other;
}

}  // namespace

template <typename Number>
std::optional<Copies::Copy> Copies::sent(const Vector& numbers) {
    Copy copy{Array<char>(memory_, numbers.size() * sizeof(Number)),
              sizeof(Number) < sizeof(double), 0.0};
    const std::size_t most = buffer_ / sizeof(Number);
    for (std::size_t first = 0; first < numbers.size(); first += most) {
        const std::size_t count = std::min(most, numbers.size() - first);
        char* const there = copy.bytes.get() + first * sizeof(Number);
        auto* const to = static_cast<Number*>(staging_.buffer(there));
        std::mutex mutex;
        bool same = true;
        parallel(count, grain, [&](std::size_t begin, std::size_t end) {
            double largest = 0.0;
            bool all = true;
            for (std::size_t at = begin; at < end; ++at) {
                const double number = numbers[first + at];
                to[at] = static_cast<Number>(number);
                all = all && static_cast<double>(to[at]) == number;
                largest = larger(std::fabs(number), largest);
            }
            const std::lock_guard<std::mutex> lock(mutex);
            same = same && all;
            copy.largest = larger(largest, copy.largest);
        });
        if (copy.floats && !same) {
            return std::nullopt;
        }
        staging_.upload(there, count * sizeof(Number));
    }
    return copy;
}

template <typename Make>
Copies::Held Copies::found_or(const Life& life, std::size_t bytes, const Make& make) {
    std::vector<Held> gone;  // released when the lock is
    const auto drop = [&](auto entry) {
        used_ -= entry->second.copy->bytes.size();
        gone.push_back(std::move(entry->second.copy));
        uses_.erase(entry->second.use);
        return entries_.erase(entry);
    };
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto known = entries_.find(life);
        if (known != entries_.end()) {
            uses_.splice(uses_.begin(), uses_, known->second.use);
            return known->second.copy;
        }
        for (auto entry = entries_.begin(); entry != entries_.end();) {
            entry = entry->first.expired() ? drop(entry) : std::next(entry);
        }
        while (bytes <= room_ && used_ + bytes > room_ && !uses_.empty()) {
            drop(entries_.find(uses_.back()));
        }
    }
    gone.clear();
    constexpr std::uint64_t part = 2;  // the rest is for ciphertexts
    if (bytes == 0 || bytes > room_ || bytes > memory_.left() / part) {
        return nullptr;
    }
    auto made = std::make_shared<const Copy>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    uses_.push_front(life);
    entries_.insert({life, {made, uses_.begin()}});
    used_ += made->bytes.size();
    return made;
}

Copies::Held Copies::of(const Elements& elements) {
    const Vector& numbers = *elements.numbers;
    return found_or(*elements.life, numbers.size() * sizeof(double), [&] {
        std::optional<Copy> small = sent<float>(numbers);
        return small ? std::move(*small) : std::move(*sent<double>(numbers));
    });
}

Copies::Held Copies::of(const Table& table) {
    const std::size_t bytes = table.numbers.size() * sizeof(std::int32_t);
    return found_or(table.life, bytes, [&] {
        Copy copy{Array<char>(memory_, bytes), false, 0.0};
        const auto* from = reinterpret_cast<const char*>(table.numbers.data());
        for (std::size_t first = 0; first < bytes; first += buffer_) {
            const std::size_t some = std::min(buffer_, bytes - first);
            char* const there = copy.bytes.get() + first;
            std::memcpy(staging_.buffer(there), from + first, some);
            staging_.upload(there, some);
        }
        return copy;
    });
}

void Copies::clear() {
    decltype(entries_) gone;  // released when the lock is
    const std::lock_guard<std::mutex> lock(mutex_);
    gone.swap(entries_);
    uses_.clear();
    used_ = 0;
}

}  // namespace atlasc::ckks
