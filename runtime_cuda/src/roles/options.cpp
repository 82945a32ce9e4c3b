#include <algorithm>
#include <iostream>
#include <new>
#include <string>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {

Options::Options(int argc, char** argv, int first, const std::string& usage,
                 const std::vector<std::string>& wanted,
                 const std::vector<std::string>& optional,
                 const std::vector<std::string>& flags) {
    const auto in = [](const std::vector<std::string>& options, const std::string& option) {
        return std::find(options.begin(), options.end(), option) != options.end();
    };
    for (int at = first; at < argc; at += 2) {
        const std::string option = argv[at];
        if (in(flags, option)) {
            values_[option] = "";
            --at;
            continue;
        }
        if (!in(wanted, option) && !in(optional, option)) {
            throw Error("there is no option " + option, "", usage);
        }
        if (at + 1 == argc) {
            throw Error("the option " + option + " needs a value", "", usage);
        }
        values_[option] = argv[at + 1];
    }
    for (const std::string& option : wanted) {
        if (values_.count(option) == 0) {
            throw Error("the option " + option + " is missing", "", usage);
        }
    }
}

std::int64_t Options::number(const std::string& name) const {
    const std::string& text = values_.at(name);
    const auto number = plain_number(text);
    if (!number) {
        throw Error("the option " + name + " is no whole number", "it is \"" + text + "\"",
                    "write at most nine digits");
    }
    return static_cast<std::int64_t>(*number);
}

std::uint64_t Options::size(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) {
        return 0;
    }
    const std::string& text = found->second;
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string unit = text.substr(digits);
    const int shift = unit == "G" ? 30 : unit == "M" ? 20 : -1;
    const auto number = plain_number(text.substr(0, digits));
    if (!number || digits > 6 || shift < 0 || *number == 0) {
        throw Error("the option " + name + " is no size", "it is \"" + text + "\"",
                    "write something like 40G or 800M");
    }
    return std::uint64_t{*number} << shift;
}

int reported(const std::function<void()>& command) {
    constexpr int internal_error = 1;
    try {
        command();
        return 0;
    } catch (const Error& error) {
        std::cerr << "error: " << printable(error.what()) << '\n';
        for (const auto& [title, text] : {std::pair<const char*, const std::string&>
                                              {"where", error.where},
                                          {"why", error.why},
                                          {"what to do", error.remedy}}) {
            if (!text.empty()) {
                std::cerr << "  " << title << ": " << printable(text) << '\n';
            }
        }
        return error.exit_code;
    } catch (const std::bad_alloc&) {
        std::cerr << "error: not enough memory\n"
                     "  what to do: a shorter input, or a larger machine\n";
        return Error::user_error;
    } catch (const std::exception& error) {
        std::cerr << "internal error: " << printable(error.what()) << '\n';
        return internal_error;
    }
}

std::string Parameters::text() const {
    const std::string refreshed = bootstrap_level ? std::to_string(*bootstrap_level) : "none";
    std::string text = std::to_string(slots) + " slots, " + std::to_string(max_level) +
                       " levels, after a bootstrap " + refreshed + ", " +
                       std::to_string(bootstrap_batch) + " in a bootstrap";
    if (moduli) {
        text += ", primes of";
        for (const int bits : moduli->primes) {
            text += " " + std::to_string(bits);
        }
        text += " bits, special ones of";
        for (const int bits : moduli->special) {
            text += " " + std::to_string(bits);
        }
        text += ", scale " + std::to_string(moduli->scale);
        text += moduli->log_scales.empty() ? "" : ", by level";
        for (const double log_scale : moduli->log_scales) {
            text += " " + std::to_string(log_scale);
        }
    }
    return text;
}

}  // namespace atlasc
