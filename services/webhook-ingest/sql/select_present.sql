SELECT tenure_now() AS now
