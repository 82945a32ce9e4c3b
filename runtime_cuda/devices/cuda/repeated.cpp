// Work that repeats, as CUDA graphs: the second time it is captured, from the third time on it is
// launched.
#include "ckks/repeated.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/value.hpp"
#include "devices/cuda/graph.hpp"

namespace atlasc::ckks {
namespace {

enum class Wanted { off, where_they_work, required };

Wanted wanted() {
    const char* text = std::getenv("ATLASC_GRAPHS");
    if (text == nullptr) {
        return Wanted::where_they_work;
    }
    const std::string name = text;
    if (name != "off" && name != "required") {
        throw Error("ATLASC_GRAPHS is neither off nor required", "it is \"" + name + "\"",
                    "set it to off to launch each kernel by itself, or unset it");
    }
    return name == "off" ? Wanted::off : Wanted::required;
}

void copy(Word* to, const Word* from, std::size_t words) {
    check(cudaMemcpyAsync(to, from, words * sizeof(Word), cudaMemcpyDeviceToDevice, stream()),
          "cudaMemcpyAsync");
}

Value copied(const Ring& ring, const Value& x) {
    auto polys = std::make_shared<Polys>(ring, x.polys->parts, x.polys->limbs);
    copy(polys->words.get(), x.polys->words.get(), polys->words.size());
    return {x.level, std::move(polys), x.limbs, x.scale};
}

Ciphertexts handles_of(const std::vector<Value>& values) {
    Ciphertexts handles;
    for (const Value& x : values) {
        handles.push_back(held(x.polys, x.level, x.limbs, x.scale));
    }
    return handles;
}

}  // namespace

/// What the launches for a ciphertext depend on: level, parts, primes that there are and that
/// count, scale.
using Form = std::tuple<int, std::size_t, std::size_t, std::size_t, double>;

inline Form form_of(const Value& x) {
    return {x.level, x.polys->parts, x.polys->limbs, x.limbs, x.scale};
}

/// A ciphertext in the memory of a graph.
struct Place {
    Form form;
    Word* words;
    std::size_t size;
};

inline Place place_of(const Value& x) {
    return {form_of(x), x.polys->words.get(), x.polys->words.size()};
}

/// Room for what is computed between the operands and the results of a graph. All graphs share it:
/// they run one after another.
using Workspace = std::shared_ptr<const Array<char>>;

/// Work on ciphertexts of some forms, captured.
class Captured {
public:
    Captured(const Ring& ring, const std::vector<Value>& operands, const GraphNeeds& needs,
             Workspace workspace, const Repeated::Work& work)
        : workspace_(std::move(workspace)),
          graph_(ring.memory(), needs, workspace_->get(), [&] {
              std::vector<Value> own;
              for (const Value& x : operands) {
                  own.push_back({x.level,
                                 std::make_shared<Polys>(ring, x.polys->parts, x.polys->limbs),
                                 x.limbs, x.scale});
                  operands_.push_back(place_of(own.back()));
              }
              for (const Ciphertext& x : work(handles_of(std::exchange(own, {})))) {
                  results_.push_back(place_of(of(x)));
              }
          }) {}

    /// The work on other ciphertexts of these forms. `alone` is held while the workspace is used,
    /// which `overwritten` fills with garbage before.
    std::vector<Value> launched(const Ring& ring, const std::vector<Value>& operands,
                                std::mutex& alone, bool overwritten = false) const {
        std::vector<Value> results;
        std::vector<Word*> to;
        for (const Place& place : results_) {
            const auto& [level, parts, stored, limbs, scale] = place.form;
            auto polys = std::make_shared<Polys>(ring, parts, stored);
            to.push_back(polys->words.get());
            results.push_back({level, std::move(polys), limbs, scale});
        }
        const std::lock_guard<std::mutex> lock(alone);
        if (overwritten) {
            check(cudaMemsetAsync(workspace_->get(), 0xa5, workspace_->bytes(), stream()),
                  "cudaMemsetAsync");
        }
        for (std::size_t at = 0; at < operands.size(); ++at) {
            copy(operands_[at].words, operands[at].polys->words.get(), operands_[at].size);
        }
        graph_.launch();
        for (std::size_t at = 0; at < results.size(); ++at) {
            copy(to[at], results_[at].words, results_[at].size);
        }
        return results;
    }

private:
    Workspace workspace_;
    std::vector<Place> operands_;
    std::vector<Place> results_;
    Graph graph_;
};

namespace {

bool are_equal(const std::vector<Value>& some, const std::vector<Value>& others) {
    const auto same = [](const Value& x, const Value& y) {
        const auto words = [](const Value& z) {
            return downloaded(z.polys->words.get(), z.polys->words.size());
        };
        return form_of(x) == form_of(y) && words(x) == words(y);
    };
    return std::equal(some.begin(), some.end(), others.begin(), others.end(), same);
}

}  // namespace

struct Repeated::Records {
    using Key = std::tuple<const Ring*, std::size_t, std::vector<Form>>;
    struct Entry {
        bool begun = false;  ///< its plaintexts are encoded, and its kernels on the device
        std::shared_ptr<const Captured> captured;
    };

    /// Nothing where graphs are off, or other work has taken all of them.
    std::optional<Entry> known(const Key& key) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (off || (entries.size() == most && entries.count(key) == 0)) {
            return std::nullopt;
        }
        Entry& entry = entries[key];
        return std::exchange(entry, {true, entry.captured});
    }

    void keep(const Key& key, Entry entry) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!off) {
            entries[key] = std::move(entry);
        }
    }

    /// The direct way goes on. Throws the error where graphs are required.
    void turn_off(const Error& error) {
        if (required) {
            throw error;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (!std::exchange(off, true) && !entries.empty()) {
            std::cerr << "warning: each kernel is launched by itself, without CUDA graphs: "
                      << error.what() << ": " << error.why << '\n';
        }
        entries.clear();
        workspace.reset();
    }

    /// At least so many bytes. Where it has to grow, graphs in the old one are captured anew when
    /// they are wanted next. Throws Error: memory is short.
    Workspace workspace_of(std::size_t bytes) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            if (workspace != nullptr && workspace->bytes() >= bytes) {
                return workspace;
            }
            for (auto& [key, entry] : entries) {
                entry.captured = nullptr;
            }
            workspace.reset();
        }
        if (memory.left() / share < bytes) {
            throw Error("too little device memory is left for graphs",
                        "they need " + std::to_string(bytes >> 20) + " MiB");
        }
        // Not under the lock: it may press for memory, which clears this.
        auto made = std::make_shared<const Array<char>>(memory, bytes);
        const std::lock_guard<std::mutex> lock(mutex);
        if (!off && (workspace == nullptr || workspace->bytes() < bytes)) {
            workspace = made;
        }
        return made;
    }

    /// Computes, and captures what it computes; a graph is kept if it computes the same.
    std::vector<Value> captured(const Key& key, const Ring& ring,
                                const std::vector<Value>& operands, const Work& work) {
        Recording measuring;
        const std::vector<Value> expected = [&] {
            const Recording::Scope scope(measuring);
            std::vector<Value> own;
            for (const Value& x : operands) {
                own.push_back(copied(ring, x));
            }
            std::vector<Value> found;
            for (const Ciphertext& x : work(handles_of(std::exchange(own, {})))) {
                found.push_back(of(x));
            }
            return found;
        }();
        const GraphNeeds needs = measuring.measured();
        try {
            const Workspace room = workspace_of(needs.blocks);
            auto made = std::make_shared<const Captured>(ring, operands, needs, room, work);
            if (!are_equal(made->launched(ring, operands, alone, true), expected)) {
                throw Error("a graph computes something else", "its results were compared");
            }
            keep(key, {true, std::move(made)});
        } catch (const Error& error) {
            turn_off(error);
        }
        return expected;
    }

    static constexpr std::uint64_t share = 4;  ///< at most such a part of the memory that is left
    static constexpr std::size_t most = 64;  ///< kinds and forms: the driver has some MB for each

    explicit Records(Memory& of) : memory(of) {}

    Memory& memory;
    const bool required = wanted() == Wanted::required;
    std::mutex alone;  ///< over the workspace on the stream: no memory is asked for under it
    std::mutex mutex;  ///< over what follows
    bool off = wanted() == Wanted::off;
    std::map<Key, Entry> entries;
    Workspace workspace;
};

Repeated::Repeated(Memory& memory) : records_(std::make_unique<Records>(memory)) {}

Repeated::~Repeated() = default;

Ciphertexts Repeated::run(const Ring& ring, std::size_t kind, const Ciphertexts& xs,
                          const Work& work) {
    std::vector<Value> operands;
    std::vector<Form> forms;
    for (const Ciphertext& x : xs) {
        operands.push_back(of(x));
        forms.push_back(form_of(operands.back()));
    }
    const Records::Key key{&ring, kind, std::move(forms)};
    const std::optional<Records::Entry> known = records_->known(key);
    if (!known || !known->begun) {
        return work(xs);
    }
    if (known->captured == nullptr) {
        return handles_of(records_->captured(key, ring, operands, work));
    }
    try {
        return handles_of(known->captured->launched(ring, operands, records_->alone));
    } catch (const Error& error) {
        records_->turn_off(error);
        return work(xs);
    }
}

void Repeated::clear() {
    records_->turn_off(Error("memory is short", "the graphs gave theirs back"));
}

void keep_for_graph(std::shared_ptr<const void> read) {
    Recording* const recording = Recording::current();
    if (recording != nullptr && recording->captures()) {
        recording->keep(std::move(read));
    }
}

}  // namespace atlasc::ckks
