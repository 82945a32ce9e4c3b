#include "atlasc/rotation_plan.hpp"

#include <algorithm>

#include "atlasc/interface.hpp"

namespace atlasc {
namespace {

using Path = std::vector<std::size_t>;

/// Key switches that start with common ones: amount -> what follows it.
struct Tree {
    std::map<std::size_t, Tree> branches;
};

struct Walk {
    Engine& engine;
    const RotationPlan& plan;
    int level;
    std::map<Path, Ciphertext> done;

    void visit(const Tree& tree, const Path& before) {
        const Ciphertext source = done.at(before);
        std::vector<std::size_t> hoisted;
        for (const auto& branch : tree.branches) {
            if (plan.hoists(branch.first, level)) {
                hoisted.push_back(branch.first);
            }
        }
        std::map<std::size_t, Ciphertext> rotated;
        const Ciphertexts together = engine.rotate_many(source, hoisted);
        for (std::size_t at = 0; at < hoisted.size(); ++at) {
            rotated[hoisted[at]] = together[at];
        }
        for (const auto& [amount, following] : tree.branches) {
            const auto found = rotated.find(amount);
            Path path = before;
            path.push_back(amount);
            done[path] = found != rotated.end() ? found->second : engine.rotate(source, amount);
            visit(following, path);
        }
    }
};

}  // namespace

bool RotationPlan::hoists(std::size_t amount, int level) const {
    const auto key = keys.find(amount);
    return key != keys.end() && key->second >= level;
}

std::vector<std::size_t> RotationPlan::path(std::size_t amount, int level) const {
    const auto parts = composed.find(amount);
    if (hoists(amount, level) || bootstrap.count(amount) != 0 || parts == composed.end()) {
        return {amount};
    }
    std::vector<std::size_t> result = path(parts->second.first, level);
    result.push_back(parts->second.second);
    return result;
}

Ciphertexts RotationPlan::rotate_many(Engine& engine, const Ciphertext& x,
                                      const std::vector<long>& amounts) const {
    const auto slots = static_cast<long>(engine.slots());
    Walk walk{engine, *this, engine.level(x), {{Path{}, x}}};
    std::vector<Path> paths;
    Tree tree;
    for (const long amount : amounts) {
        const auto wanted = static_cast<std::size_t>((amount % slots + slots) % slots);
        paths.push_back(wanted == 0 ? Path{} : path(wanted, walk.level));
        Tree* branch = &tree;
        for (const std::size_t step : paths.back()) {
            branch = &branch->branches[step];
        }
    }
    walk.visit(tree, {});
    Ciphertexts result;
    for (const Path& path : paths) {
        result.push_back(walk.done.at(path));
    }
    return result;
}

std::map<std::size_t, int> KeyPlan::all_rotations() const {
    std::map<std::size_t, int> result = rotations.keys;
    for (const auto& [amount, level] : bootstrap) {
        int& highest = result.try_emplace(amount, level).first->second;
        highest = std::max(highest, level);
    }
    return result;
}

}  // namespace atlasc
