// Members of the JSON text of a program's file, each checked when it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atlasc/base/json.hpp"
#include "atlasc/base/tensor_file.hpp"
#include "atlasc/layout.hpp"
#include "src/program_checks.hpp"

namespace atlasc {

/// Members of an object; a member that is missing has no value.
class Facts {
    /// Of counts in the text: extents, levels, numbers of values.
    static constexpr std::uint64_t most_count = std::uint64_t{1} << 40;
    static constexpr int most_level = 4096;

public:
    Facts(const TensorFile& file, const Json& json) : file_(file), members_(json.object()) {}

    /// The same, if it has no other members than these.
    const Facts& only(const std::set<std::string>& names) const {
        for (const auto& member : members_) {
            if (names.count(member.first) == 0) {
                refuse_program(file_, "its text has the member '" + member.first + "', which is none");
            }
        }
        return *this;
    }

    bool has(const std::string& name) const { return members_.count(name) != 0; }

    const Json& operator[](const std::string& name) const {
        const auto found = members_.find(name);
        if (found == members_.end()) {
            refuse_program(file_, "its text lacks " + name);
        }
        return found->second;
    }

    Facts facts(const std::string& name) const { return {file_, (*this)[name]}; }

    std::size_t count(const std::string& name) const { return counted((*this)[name]); }

    std::size_t counted(const Json& json) const {
        const std::uint64_t found = json.integer();
        if (found > most_count) {
            refuse_program(file_, "a number in its text is too large");
        }
        return static_cast<std::size_t>(found);
    }

    std::vector<std::size_t> counts(const std::string& name) const {
        std::vector<std::size_t> found;
        for (const Json& one : (*this)[name].array()) {
            found.push_back(counted(one));
        }
        return found;
    }

    int level(const std::string& name) const { return leveled((*this)[name]); }

    int leveled(const Json& json) const {
        const std::uint64_t found = json.integer();
        if (found > most_level) {
            refuse_program(file_, "a number in its text is too large");
        }
        return static_cast<int>(found);
    }

    std::vector<int> levels(const std::string& name) const {
        std::vector<int> found;
        for (const Json& one : (*this)[name].array()) {
            found.push_back(leveled(one));
        }
        return found;
    }

    /// A level; -1 for one that is missing.
    int level_if_any(const std::string& name) const { return has(name) ? level(name) : -1; }

    std::optional<double> real_if_any(const std::string& name) const {
        return has(name) ? std::optional<double>((*this)[name].real()) : std::nullopt;
    }

    bool flag(const std::string& name) const { return has(name) && count(name) != 0; }

    std::string text_if_any(const std::string& name) const {
        return has(name) ? (*this)[name].string() : std::string();
    }

    Layout layout() const { return Layout((*this)["layout"].string()); }

private:
    const TensorFile& file_;
    const Json::Object& members_;
};

}  // namespace atlasc
