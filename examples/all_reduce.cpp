// SPDX-License-Identifier: Apache-2.0
/* all_reduce.c in C++: the interface is C, and a few lines make it fit.
 *
 *   c++ -std=c++17 all_reduce.cpp -o all_reduce $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./all_reduce */
#include <kolo/kolo.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

/* Errors become exceptions with kolo's text. */
static void must(kolo_status status)
{
    if (status < 0) {
        throw std::runtime_error(kolo_error_text());
    }
}

/* The communicator ends with its scope, also when an exception leaves it. The other ranks are
 * informed. */
struct Destroy {
    void operator()(kolo_comm *comm) const
    {
        kolo_comm_destroy(comm);
    }
};
using Comm = std::unique_ptr<kolo_comm, Destroy>;

static Comm join()
{
    kolo_comm *comm = nullptr;
    must(kolo_comm_create_env(nullptr, &comm));
    return Comm(comm);
}

/* The type of an element, found by the compiler. It refuses a type that is not listed here. */
template <typename T> inline constexpr kolo_type type_of = KOLO_TYPES;
template <> inline constexpr kolo_type type_of<float> = KOLO_FLOAT32;
template <> inline constexpr kolo_type type_of<double> = KOLO_FLOAT64;

template <typename T> static void average(std::vector<T> &values, const Comm &comm)
{
    static_assert(type_of<T> != KOLO_TYPES);
    must(kolo_all_reduce(values.data(), values.data(), values.size(), type_of<T>, KOLO_AVG,
                         comm.get(), nullptr));
}

int main()
try {
    const Comm comm = join();
    const int rank = kolo_comm_rank(comm.get());
    std::vector<double> values(1000);
    std::iota(values.begin(), values.end(), rank);
    average(values, comm);
    std::printf("rank %d of %d: the means go from %g to %g\n", rank, kolo_comm_size(comm.get()),
                values.front(), values.back());
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
