// What went wrong, where, why, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace atlasc {

/// A mistake that a user can mend: the executables print it and exit with 2.
class Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, std::string why = "", std::string remedy = "")
        : std::runtime_error(what), why(std::move(why)), remedy(std::move(remedy)) {}

    std::string where;
    std::string why;
    std::string remedy;
};

}  // namespace atlasc
