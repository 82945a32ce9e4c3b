#include "atlasc/base/threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace atlasc {
namespace {

using Work = std::function<void(std::size_t, std::size_t)>;

/// Whether this thread is inside of a loop already.
thread_local bool inside = false;

/// One loop at a time; its caller works, too. Who finds the team in another thread's loop works alone:
/// so several queries keep all processors busy, and a long one holds up no short one.
class Team {
public:
    explicit Team(std::size_t helpers) {
        for (std::size_t at = 0; at < helpers; ++at) {
            threads_.emplace_back([this] { help(); });
        }
    }

    ~Team() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        begun_.notify_all();
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    std::size_t size() const { return threads_.size() + 1; }

    void run(std::size_t count, std::size_t step, const Work& work) {
        const std::unique_lock<std::mutex> alone(loop_, std::try_to_lock);
        if (!alone) {
            work(0, count);
            return;
        }
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            work_ = &work;
            count_ = count;
            step_ = step;
            next_ = 0;
            busy_ = threads_.size();
            ++number_;
        }
        begun_.notify_all();
        take();
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

private:
    void help() {
        std::uint64_t last = 0;
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                begun_.wait(lock, [&] { return ended_ || number_ != last; });
                if (ended_) {
                    return;
                }
                last = number_;
            }
            take();
            const std::lock_guard<std::mutex> lock(mutex_);
            if (--busy_ == 0) {
                done_.notify_one();
            }
        }
    }

    void take() {
        inside = true;
        for (std::size_t begin = next_.fetch_add(step_); begin < count_;
             begin = next_.fetch_add(step_)) {
            (*work_)(begin, std::min(begin + step_, count_));
        }
        inside = false;
    }

    std::vector<std::thread> threads_;
    std::mutex loop_;
    std::mutex mutex_;
    std::condition_variable begun_;
    std::condition_variable done_;
    std::atomic<std::size_t> next_{0};
    std::size_t count_ = 0;
    std::size_t step_ = 1;
    std::size_t busy_ = 0;
    std::uint64_t number_ = 0;
    bool ended_ = false;
    const Work* work_ = nullptr;
};

/// ATLASC_THREADS, or one for each processor.
std::size_t wanted_threads() {
    const char* text = std::getenv("ATLASC_THREADS");
    const long given = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
    const long found = static_cast<long>(std::thread::hardware_concurrency());
    return static_cast<std::size_t>(std::clamp(given > 0 ? given : found, 1L, 256L));
}

/// Never destroyed: where a process ends, its threads end with it.
std::atomic<Team*> current{nullptr};

/// Threads do not survive a fork: the first loop of the child makes its own.
Team& team() {
    static const int watched =
        pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    static_cast<void>(watched);
    Team* found = current.load();
    if (found == nullptr) {
        auto made = std::make_unique<Team>(wanted_threads() - 1);
        if (current.compare_exchange_strong(found, made.get())) {
            found = made.release();
        }
    }
    return *found;
}

constexpr std::size_t shares = 32;  ///< ranges of a thread, so that a slow one holds up no other

}  // namespace

void parallel(std::size_t count, std::size_t grain, const Work& work) {
    if (count == 0) {
        return;
    }
    if (inside || count <= grain || team().size() == 1) {
        work(0, count);
        return;
    }
    const std::size_t ranges = team().size() * shares;
    team().run(count, std::max(grain, (count + ranges - 1) / ranges), work);
}

}  // namespace atlasc
