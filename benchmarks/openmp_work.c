/* Work for a pool of OpenMP's, whose threads stay awake behind it. */
#include <stddef.h>

double sum_of_squares(const double *values, ptrdiff_t count, int threads) {
    double sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(threads)
    for (ptrdiff_t i = 0; i < count; ++i) {
        sum += values[i] * values[i];
    }
    return sum;
}
