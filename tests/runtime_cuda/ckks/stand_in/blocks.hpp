// Blocks of threads on the host: in each phase its threads run one after another, in an order that
// changes, and a race for the block's memory is found.
#pragma once

#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace stand_in {

/// Two threads race that touch one number in one phase, if one of them writes it.
template <typename Number>
class WatchedMemory {
public:
    explicit WatchedMemory(std::size_t size) : numbers_(size), reads_(size), writes_(size) {}

    WatchedMemory(const WatchedMemory&) = delete;
    WatchedMemory& operator=(const WatchedMemory&) = delete;
    /// A device's own memory is no part of the process, where nothing of it can be found later.
    ~WatchedMemory() { explicit_bzero(numbers_.data(), numbers_.size() * sizeof(Number)); }

    void begin(std::uint64_t phase) { phase_ = phase; }
    void enter(std::size_t thread) { thread_ = thread; }

    Number get(std::size_t at) const {
        require(writes_.at(at));
        Touch& touch = reads_.at(at);
        // Of several readers a writer must be none.
        const bool other = touch.phase == phase_ && touch.thread != thread_;
        touch = {phase_, other ? many : thread_};
        return numbers_[at];
    }

    void set(std::size_t at, const Number& number) const {
        require(writes_.at(at));
        require(reads_.at(at));
        writes_[at] = {phase_, thread_};
        numbers_[at] = number;
    }

private:
    struct Touch {
        std::uint64_t phase = 0;
        std::size_t thread = 0;
    };
    static constexpr std::size_t many = ~std::size_t{0};

    void require(const Touch& touch) const {
        if (touch.phase == phase_ && touch.thread != thread_) {
            throw std::logic_error("two threads of a block race for a number");
        }
    }

    std::uint64_t phase_ = 0;
    std::size_t thread_ = 0;
    mutable std::vector<Number> numbers_;
    mutable std::vector<Touch> reads_;
    mutable std::vector<Touch> writes_;
};

template <typename Function>
void run_blocks(std::size_t blocks, std::size_t threads, const Function& function) {
    static std::mt19937 random(1);
    static std::uint64_t number = 0;  // of phases, so that none has been before
    WatchedMemory<typename Function::Number> memory(Function::shared);
    std::vector<std::size_t> order(threads);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t block = 0; block < blocks; ++block) {
        for (int phase = 0; phase < function.phases(); ++phase) {
            memory.begin(++number);
            std::shuffle(order.begin(), order.end(), random);
            for (const std::size_t thread : order) {
                memory.enter(thread);
                function(phase, block, thread, memory);
            }
        }
    }
}

}  // namespace stand_in
